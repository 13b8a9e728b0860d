// Stands in for the program in the contract tests (TEST_PROGRAM). Runs the image with only the
// variables of its own environment; forwards output, signals and exit status.
//   node run-container.ts IMAGE [ARGUMENT …]
import { type StdioOptions, spawn } from 'node:child_process';
import { chownSync, readdirSync, statSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { ENGINE } from '../../image/unpack.ts';
import { HARDENED } from './engine.ts';

const [image = '', ...args] = process.argv.slice(2);
const name = `notes-users-test-${process.pid}`;
const { uid, gid, homedir } = userInfo();

// The tests' files are in temporary folders such as notes-users-a1B2c3.
const FOLDER = /\/[^:\s?=]*\/notes-users-\w{6}(?=\/|$)/g;
const folders = [
  ...new Set(Object.values(process.env).flatMap((value) => value?.match(FOLDER) ?? [])),
];
// mkdtemp folders and openssl's keys are readable only by their owner, so the container's user must
// be their owner. Files of another owner belong to the Postgres server.
if (uid === 0) {
  for (const folder of folders) {
    const paths = readdirSync(folder, { recursive: true, encoding: 'utf8' });
    for (const path of [folder, ...paths.map((path) => join(folder, path))]) {
      const isRoots = statSync(path, { throwIfNoEntry: false })?.uid === 0; // A link may lead nowhere.
      if (isRoots) chownSync(path, 65_532, 0);
    }
  }
}
const user = uid === 0 ? [] : ['--user', `${uid}:${gid}`];

const env: Record<string, string | undefined> = {
  // Clears the image's values, which would collide: all containers share this machine's network.
  ADMIN_PORT: '',
  DATABASE_URL: '',
  ...process.env,
  NODE_OPTIONS: [
    process.env.NODE_OPTIONS ?? '',
    ...folders.flatMap((folder) => [`--allow-fs-read=${folder}/`, `--allow-fs-write=${folder}/`]),
  ].join(' '),
};

const command = [
  ...['run', '--rm', '--name', name, '--network', 'host', ...HARDENED, ...user],
  ...Object.keys(env).flatMap((variable) => ['-e', variable]),
  ...folders.flatMap((folder) => ['-v', `${folder}:${folder}`]),
  ...[image, ...args],
];
const own = { HOME: homedir, PATH: '/usr/local/bin:/usr/bin:/bin' };
const stdio: StdioOptions = ['ignore', 'inherit', 'inherit'];
const child = spawn(ENGINE, command, { stdio, env: { ...env, ...own } });
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR2'] as const) {
  process.on(signal, () => child.kill(signal));
}
child.on('exit', (status) => process.exit(status ?? 1));

// A test that ends kills this process, which would leave the container running. So a shell reads a
// pipe that closes with this process, and then kills the container.
const script = 'read _; while kill -0 $1; do "$2" kill "$3"; sleep 0.1; done';
spawn('sh', ['-c', script, 'sh', String(child.pid), ENGINE, name], {
  ...{ stdio: ['pipe', 'ignore', 'ignore'], env: own, detached: true },
}).unref();
