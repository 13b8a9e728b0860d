// The published form of the package (contract section 9). Packs it, installs it in an empty folder,
// and runs the suite of examples/node-test there.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, globSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { newFolder } from './support/program.ts';

const ROOT = join(import.meta.dirname, '..');
const TIMEOUT_MS = 30_000;

/** Environment variables that would change the service if it read them. */
const HOSTILE = {
  PORT: 'none',
  HOST: '192.0.2.1',
  DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none',
  AUTH_USER: 'someone:else',
  LOG_LEVEL: 'debug',
  TLS_CERT_FILE: '/nowhere',
};

describe('the package', { timeout: 120_000 }, () => {
  let folder = '';
  let tarball = '';
  let packed: readonly string[] = [];

  before(() => {
    folder = newFolder();
    cpSync(join(ROOT, 'examples/node-test'), folder, { recursive: true });
    const npm = (cwd: string, ...args: readonly string[]) =>
      execFileSync('npm', args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
    const list = JSON.parse(npm(ROOT, 'pack', '--json', '--silent', '--pack-destination', folder));
    const [{ filename, files }] = Object.values(list) as [
      { filename: string; files: { path: string }[] },
    ];
    tarball = filename;
    packed = files.map(({ path }) => path);
    npm(folder, 'install', '--no-audit', '--no-fund', '--prefer-offline', join(folder, filename));
  });

  /** Runs node in the folder, with a hostile environment, until it exits. */
  function run(...args: readonly string[]) {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    return spawnSync(process.execPath, args, {
      cwd: folder,
      env: { ...env, ...HOSTILE },
      encoding: 'utf8',
      timeout: TIMEOUT_MS,
    });
  }

  /** Runs a module that prints one JSON value; returns that value. */
  function evaluate(code: string, type: 'module' | 'commonjs' = 'module'): unknown {
    const { status, stdout, stderr } = run(`--input-type=${type}`, '--eval', code);
    assert.deepEqual([status, stderr], [0, '']);
    return JSON.parse(stdout);
  }

  test('9.1 start() runs the same service on a free port with no users, with await using', () => {
    const code = `
      import { start } from 'notes-users';
      let url;
      const seen = [];
      {
        await using service = await start();
        ({ url } = service);
        for (const path of ['/', '/users', '/notes', '/none']) {
          seen.push((await fetch(url + path)).status);
        }
        seen.push(await (await fetch(url + '/users')).json());
      }
      seen.push(await fetch(url).catch((err) => err.cause.code));
      console.log(JSON.stringify({ url, seen }));`;
    const { url, seen } = evaluate(code) as { url: string; seen: unknown[] };
    assert.match(url, /^http:\/\/127\.0\.0\.1:\d+$/);
    assert.deepEqual(seen, [200, 200, 401, 404, [], 'ECONNREFUSED']);
  });

  test('9.2 the suite of examples/node-test uses the output of npm pack, not a registry name', () => {
    const manifest = readFileSync(join(ROOT, 'examples/node-test/package.json'), 'utf8');
    assert.equal(JSON.parse(manifest).devDependencies['notes-users'], `file:../../${tarball}`);
  });

  test('9.2 the suite of examples/node-test passes with hostile environment variables', () => {
    const { status, stdout } = run('--test', '--test-reporter=tap', '*.test.ts');
    assert.equal(status, 0, stdout);
    assert.match(stdout, /^# pass 4$/m);
  });

  test('9.2 nothing is printed, even with failed and refused requests', () => {
    const { status, stdout, stderr } = run(
      '--input-type=module',
      '--eval',
      `import { start } from 'notes-users';
      await using service = await start({
        DATABASE_URL: 'postgres://u@127.0.0.1:1/d',
        DATABASE_TIMEOUT_MS: 100,
        ADMIN_PORT: 0,
      });
      const failed = await fetch(service.url + '/users');
      const refused = await fetch(service.url + '/%');
      if (failed.status !== 500 || refused.status !== 400) process.exitCode = 1;`,
    );
    assert.deepEqual([status, stdout, stderr], [0, '', '']);
  });

  test('9.3 ten services run side by side, each with its own users and password', () => {
    const code = `
      import { start } from 'notes-users';
      const services = await Promise.all(Array.from({ length: 10 }, () => start()));
      const headers = { 'content-type': 'application/json' };
      await Promise.all(services.map(({ url }, i) => {
        const body = JSON.stringify({ name: String(i), email: 'same@example.com' });
        return fetch(url + '/users', { method: 'POST', headers, body });
      }));
      const names = await Promise.all(services.map(async ({ url }) => {
        const users = await (await fetch(url + '/users')).json();
        return users.map(({ name }) => name).join();
      }));
      const passwords = new Set(services.map(({ credential }) => credential.password)).size;
      await Promise.all(services.map(({ close }) => close()));
      console.log(JSON.stringify({ names, passwords }));`;
    const names = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'];
    assert.deepEqual(evaluate(code), { names, passwords: 10 });
  });

  test('9.4 close() leaves no handle open, with connections kept alive and an admin listener', () => {
    const code = `
      import { start } from 'notes-users';
      const service = await start({ ADMIN_PORT: 0, DATABASE_URL: 'sqlite:closed.db' });
      await (await fetch(service.url)).text();
      await (await fetch(service.adminUrl + '/ready')).text();
      await service.close();
      // The client releases its sockets within the next turns.
      for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
      const handles = process.getActiveResourcesInfo().filter((name) => /TCP|Timeout|FS/.test(name));
      process.once('exit', () => console.log(JSON.stringify(handles)));`;
    assert.deepEqual(evaluate(code), []);
  });

  test('9.5 an unknown setting or an invalid value is refused by name', () => {
    const code = `
      import { start } from 'notes-users';
      const refusals = [{ PROT: 1 }, { PORT: -1, AUTH_PASSWORD: 'short' }].map((settings) =>
        start(settings).catch(({ name, problems }) => [name, problems.map((line) => line.split(':')[0])]));
      console.log(JSON.stringify(await Promise.all(refusals)));`;
    assert.deepEqual(evaluate(code), [
      ['InvalidConfig', ['PROT']],
      ['InvalidConfig', ['PORT', 'AUTH_PASSWORD']],
    ]);
  });

  test('9.6 its types: valid settings compile, invalid ones do not, in both kinds of modules', () => {
    mkdirSync(join(folder, 'node_modules/@types'), { recursive: true });
    for (const name of ['@types/node', 'undici-types']) {
      symlinkSync(join(ROOT, 'node_modules', name), join(folder, 'node_modules', name));
    }
    const rest = `
      // @ts-expect-error an unknown name
      start({ PROT: 1 });
      // @ts-expect-error a number, not a text
      start({ PORT: '0' });
      // @ts-expect-error a boolean, not a text
      start({ PROTECT_USERS: 'true' });
      // @ts-expect-error nothing is printed
      start({ LOG_LEVEL: 'info' });
      start().then((service) => {
        const url: string = service.url;
        // @ts-expect-error absent without ADMIN_PORT
        const adminUrl: string = service.adminUrl;
        // @ts-expect-error not exported by the package
        service.stop();
        return [url, adminUrl, service.close()];
      });\n`;
    const right = 'start({ PORT: 0, PROTECT_USERS: true, TLS_KEY_FILE: undefined });';
    writeFileSync(join(folder, 'esm.mts'), `import { start } from 'notes-users';\n${right}${rest}`);
    writeFileSync(
      join(folder, 'cjs.cts'),
      `import notes = require('notes-users');\nconst { start } = notes;\n${right}${rest}`,
    );
    const compilerOptions = {
      ...{ target: 'es2022', lib: ['es2022'], module: 'nodenext', types: ['node'], noEmit: true },
      ...{ strict: true, skipLibCheck: false, allowImportingTsExtensions: true },
    };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions }));
    const { status, stdout } = spawnSync('tsc', ['--project', folder], { encoding: 'utf8' });
    assert.deepEqual([status, stdout], [0, '']);
  });

  test('9.6 require() works too, in two lines', () => {
    const code = `
      const { start } = require('notes-users');
      start().then(async ({ url, close }) => {
        console.log((await fetch(url)).status);
        await close();
      });`;
    assert.equal(evaluate(code, 'commonjs'), 200);
  });

  test('9.7 npx notes-users runs the program', () => {
    const npx = (...args: readonly string[]) => {
      const env = { ...process.env, ...HOSTILE };
      const all = ['--offline', 'notes-users', ...args];
      return spawnSync('npx', all, { cwd: folder, env, encoding: 'utf8', timeout: TIMEOUT_MS });
    };
    const usage = npx('--no-such');
    assert.match(
      usage.stderr,
      /^usage: notes-users \[--json \| --backup FILE \| --live \| --ready \| --help \| --version\]$/m,
    );
    assert.equal(usage.status, 1);
    const invalid = npx();
    assert.match(invalid.stderr, /^PORT: invalid; .+\n(?:.+\n)*TLS_KEY_FILE: /m);
    assert.equal(invalid.status, 78);
  });

  test('9.8 it contains only the files that a user needs', () => {
    const schema = globSync('db/*/*.sql', { cwd: ROOT });
    const rest = [
      'LICENSE',
      'README.md',
      'dist/main.cjs',
      'dist/start.cjs',
      'dist/start.d.cts',
      'openapi.json',
      'package.json',
      'src/docs.html',
    ];
    assert.deepEqual(packed.toSorted(), [...schema, ...rest].sort());
    const types = readFileSync(join(folder, 'node_modules/notes-users/dist/start.d.cts'), 'utf8');
    const exported = Array.from(types.matchAll(/^export .*?(\w+)(?: \{|\()/gm), ([, name]) => name);
    assert.deepEqual(exported, ['Settings', 'RunningService', 'start']);
  });
});
