// `npm start` after each install that production makes, and with each node on the path (contract 9.7).
import assert from 'node:assert/strict';
import { type ExecFileOptions, execFile } from 'node:child_process';
import { delimiter, dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { copyOf, newFolder, Program, ROOT } from './support/program.ts';

const TREE = ['src', 'db', 'openapi.json', 'package.json', 'package-lock.json', '.npmrc'];
const NO_REGISTRY = 'needs the registry of npm';
const run = promisify(execFile);

/** The path without `node_modules/.bin`, where the tests themselves find their node. */
const PATH = (process.env.PATH ?? '')
  .split(delimiter)
  .filter((folder) => !folder.endsWith('node_modules/.bin'))
  .join(delimiter);

/** Runs npm; returns false without the registry. */
async function npm(args: readonly string[], options: ExecFileOptions): Promise<boolean> {
  try {
    await run('npm', [...args, '--prefer-offline'], options);
    return true;
  } catch (err) {
    if (/ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT/.test(String(err))) return false;
    throw err;
  }
}

/** Copies what a checkout needs to run, and installs its packages. Returns the folder; undefined without the registry. */
async function install(flag: string) {
  const folder = copyOf([...TREE, 'test/client/package.json', 'scripts/node/package.json']);
  const options = { cwd: folder, env: { ...process.env, PATH } };
  return (await npm(['ci', flag], options)) ? folder : undefined;
}

/** Runs `npm start` with the node of a folder until it listens or ends; returns its output and status. */
async function npmStart(cwd: string, bin: string) {
  const env = { ...(process.env as Record<string, string>), PATH: bin + delimiter + PATH };
  const shell = ['sh', '-c', `cd ${cwd} && exec npm start --silent`];
  const program = new Program({ ...env, PORT: '0', DATABASE_URL: 'sqlite::memory:' }, [], shell);
  await program.logged('listening').catch(() => {}); // An older node ends.
  const { code: status } = await program.stop();
  return { stdout: program.stdout, stderr: program.stderr, status };
}

describe('9.7 npm start', { concurrency: 2 }, () => {
  test('9.7 after npm ci --ignore-scripts the service runs', async (t) => {
    const folder = await install('--ignore-scripts');
    if (folder === undefined) return t.skip(NO_REGISTRY);
    const { stdout, status } = await npmStart(folder, dirname(process.execPath));
    assert.match(stdout, /"listening".*"stopped"/s);
    assert.equal(status, 0);
  });

  for (const version of ['20', '22', '24.0.0']) {
    test(`9.7 after npm ci --omit=dev with node ${version} on the path`, async (t) => {
      const name = `node-${process.platform}-${process.arch}`;
      const folder = await install('--omit=dev');
      const tools = newFolder();
      const isInstalled = await npm(['install', '--prefix', tools, `${name}@${version}`], {});
      if (folder === undefined || !isInstalled) return t.skip(NO_REGISTRY);
      const bin = join(tools, 'node_modules', name, 'bin');
      const { stdout, stderr, status } = await npmStart(folder, bin);
      if (version.startsWith('24')) {
        assert.match(stdout, /"listening".*"stopped"/s);
        assert.equal(status, 0);
        return;
      }
      const line = `notes-users needs Node 24 or newer, and this is Node ${version}\\.\\d+\\.\\d+\\. Install one from https://nodejs\\.org\\.`;
      assert.match(stderr, new RegExp(`^${line}\n$`));
      assert.deepEqual([stdout, status], ['', 1]);

      // The same for the files of the package.
      await run(process.execPath, [join(ROOT, 'scripts/build.ts'), join(folder, 'dist')]);
      const require = `require('./dist/start.cjs').start().catch((err) => console.log(err.message))`;
      const node = join(bin, 'node');
      const started = await run(node, ['--eval', require], { cwd: folder });
      assert.match(started.stdout, new RegExp(`^${line}\n$`));
      const expected = { code: 1, stderr: started.stdout };
      await assert.rejects(run(node, ['dist/main.cjs'], { cwd: folder }), expected);
    });
  }
});
