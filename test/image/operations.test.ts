// Runs the commands of docs/operations.md that need a container engine. Changes only the names of
// the image, the container, the volume and the registry, and the ports. Not `image/arm64.ts`, which
// is a test itself and takes minutes.
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ENGINE, run } from '../../image/unpack.ts';
import { send } from '../support/client.ts';
import { find } from '../support/daemon.ts';
import { login, token as newToken } from '../support/login.ts';
import { block } from '../support/manual.ts';
import { newFolder, ROOT } from '../support/program.ts';
import { until } from '../support/until.ts';
import { Container, engine, IMAGE, NO_IMAGE } from './engine.ts';
import { postgresImage } from './postgres-image.ts';

describe('the manual: the image', { skip: NO_IMAGE, timeout: 900_000 }, () => {
  const volume = `notes-users-test-manual-${process.pid}`;
  const container = new Container();
  const folder = newFolder();

  after(async () => {
    await container[Symbol.asyncDispose]();
    await engine('volume', 'rm', volume).catch(() => {});
  });

  /** Runs a block of the manual in the folder, with the names of this test. */
  const runs = (heading: string, words: string, cwd = folder) => {
    const commands = block(heading, words)
      .replaceAll(/\bnotes-users(:latest)?/g, IMAGE)
      .replaceAll('notes-data', volume)
      .replaceAll(/\bnotes(?=[ :\n])/g, container.name)
      .replaceAll('-p 127.0.0.1:3000:3000', '-p 127.0.0.1::3000')
      .replaceAll('build.log', join(folder, 'build.log'))
      .replaceAll(/^docker\b/gm, ENGINE);
    return run('bash', ['-ec', commands], { cwd });
  };

  test('the image is built and run, and users need a token', async () => {
    await runs('The image', 'docker build', ROOT);
    await container.responses();
    assert.equal((await fetch(`${await container.url()}/users`)).status, 401);
  });

  test('the image is verified against a new build, and against the list of a build', async () => {
    const stage = await engine('build', '-q', '--target', 'build', ROOT);
    const hashes = ['run', '--rm', '--network', 'none', stage.trim(), 'cat', '/rootfs.sha256'];
    writeFileSync(join(folder, 'build.log'), await engine(...hashes));
    const output = await runs('Audit it', 'image/verify.ts', ROOT);
    const matches = /^\d+ files match the list\n.*\nnode \d+\.\d+\.\d+: the first \d+ of /gm;
    assert.equal([...output.matchAll(matches)].length, 2, output);
  });

  test('a restored backup of the running service has its users', async () => {
    const client = await clientOf(container);
    await create(client, 'Ann');
    await runs('Backup and restore', 'docker exec');
    await create(client, 'Bob');
    await runs('Backup and restore', 'docker stop');
    await container.responses();
    assert.deepEqual(await names(await clientOf(container)), ['Ann']);
  });

  test('a restore without the file of the backup changes nothing, even after a crash', async () => {
    await create(await clientOf(container), 'Cid');
    await engine('kill', container.name); // The commit is only in the write-ahead log.
    const empty = newFolder();
    await assert.rejects(runs('Backup and restore', 'docker stop', empty), /backup\.db/);
    assert.deepEqual(readdirSync(empty), []);
    await engine('start', container.name);
    await container.responses();
    assert.deepEqual(await names(await clientOf(container)), ['Ann', 'Cid']);
  });
});

/** `docker compose`, or the older separate program (Debian package docker-compose). */
const COMPOSE = await run(ENGINE, ['compose', 'version']).then(
  () => `command ${ENGINE} compose`,
  () => find('docker-compose'),
);
const NO_COMPOSE = COMPOSE === undefined && 'compose is not installed (docker-compose)';
const COMPOSE_FILE = readFileSync(join(ROOT, 'compose.yaml'), 'utf8');
const [, PUBLISHED = ''] = /image: (postgres:.*)/.exec(COMPOSE_FILE)!;
const POSTGRES = NO_IMAGE || NO_COMPOSE ? undefined : await postgresImage(PUBLISHED);
const NO_POSTGRES = POSTGRES === undefined && `no ${PUBLISHED}, no Debian package postgresql`;

describe('the manual: compose', {
  skip: NO_IMAGE || NO_COMPOSE || NO_POSTGRES,
  timeout: 900_000,
}, () => {
  const folder = newFolder();
  let client: Client;

  before(async () => {
    const file = COMPOSE_FILE.replace('build: .', `build: ${ROOT}`)
      .replace('image: notes-users', `image: ${IMAGE}`)
      .replace(PUBLISHED, POSTGRES!)
      .replaceAll(/"127\.0\.0\.1:(\d+):\1"/g, '"127.0.0.1::$1"');
    writeFileSync(join(folder, 'compose.yaml'), file);
  });
  after(() => shell('docker compose down --volumes --timeout 20'));

  /** Runs commands in the folder of compose.yaml. */
  function shell(commands: string): Promise<string> {
    const docker = `docker() { if [ "$1" = compose ]; then shift; ${COMPOSE} "$@"; else command ${ENGINE} "$@"; fi; }`;
    const env = { COMPOSE_PROJECT_NAME: `notes-users-test-${process.pid}` };
    return run('bash', ['-eo', 'pipefail', '-c', `${docker}\n${commands}`], { cwd: folder, env });
  }

  /** Resolves with a client of the current password, once the service and its store are ready. */
  async function connected(): Promise<Client> {
    const [address] = (await shell('docker compose port service 3000')).split('\n');
    const password = readFileSync(join(folder, 'secrets/auth_password'), 'utf8').trim();
    const next = { url: `http://${address}`, password };
    await until(() => names(next).then(Boolean, () => false));
    return next;
  }

  test('with new secrets the service starts, and users need a token', async () => {
    await shell(block('Compose', 'mkdir'));
    client = await connected();
    assert.equal((await fetch(`${client.url}/users`)).status, 401);
    await create(client, 'Ann');
  });

  test('a new password works, and the old one does not', async () => {
    const old = client;
    await shell(block('Password', 'secrets/auth_password\ndocker'));
    client = await connected();
    assert.equal((await login(client, old.password)).status, 401);
  });

  test('tokens survive a new signing key until the previous one is dropped', async () => {
    const status = async (bearer: string) => (await usersWith(client, bearer)).status;
    const token = await newToken(client, client.password);
    await shell(block('Signing key, one container', 'cp -pf secrets/signing_secret'));
    client = await connected();
    assert.equal(await status(token), 200);
    const fresh = await newToken(client, client.password);
    await shell(block('Signing key, one container', ': > secrets/new && chmod 444'));
    client = await connected();
    assert.equal(await status(token), 401);
    assert.equal(await status(fresh), 200);
  });

  test('the service and the backup use a new database password', async () => {
    const url = () => readFileSync(join(folder, 'secrets/database_url'), 'utf8');
    const old = url();
    await shell(block('Database password', 'alter role'));
    assert.notEqual(url(), old);
    client = await connected();
    assert.deepEqual(await names(client), ['Ann']);
    mkdirSync(join(folder, 'old'));
    writeFileSync(join(folder, 'old/url'), old);
    const psql = 'docker compose exec -T database psql --no-password -c "select 1"';
    const asNetwork = (file: string) => shell(`${psql} "$(cat ${file})"`);
    await asNetwork('secrets/database_url');
    await assert.rejects(asNetwork('old/url'), /password authentication failed/);
  });

  test('a restored dump of the running service has its users', async () => {
    await shell(block('Backup and restore', 'pg_dump'));
    await create(client, 'Bob');
    await shell(block('Backup and restore', 'pg_restore'));
    client = await connected();
    assert.deepEqual(await names(client), ['Ann']);
  });
});

/** A service with PROTECT_USERS. */
interface Client {
  readonly url: string;
  readonly password: string;
}

/** Returns the address of a container, and the password that it generated at its last start. */
async function clientOf(container: Container): Promise<Client> {
  const lines = (await container.lines()).join('\n');
  const [, password = ''] = [...lines.matchAll(/generated for user admin: (\S+)/g)].at(-1)!;
  return { url: await container.url(), password };
}

function usersWith({ url }: Client, bearer: string, init = {}) {
  // A stop would wait for a connection that is kept.
  const headers = { connection: 'close', authorization: `Bearer ${bearer}` };
  return send(`${url}/users`, { ...init, headers });
}

async function create(client: Client, name: string): Promise<void> {
  const init = { method: 'POST', body: { name, email: `${name}@example.com` } };
  const { status } = await usersWith(client, await newToken(client, client.password), init);
  assert.equal(status, 201);
}

async function names(client: Client): Promise<readonly string[]> {
  const { body } = await usersWith(client, await newToken(client, client.password));
  return JSON.parse(body).map(({ name }: { name: string }) => name);
}
