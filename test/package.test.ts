// The published form of the package (contract section 9). Packs it, installs it in an empty folder, and runs the suite
// of examples/node-test there. Then runs its program with the flags of the image, on files of that folder.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, globSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import { before, describe, type TestContext, test } from 'node:test';
import { settingsIn } from '../image/settings.ts';
import { VARIABLES } from '../src/config.ts';
import { send } from './support/client.ts';
import { STATUSES } from './support/every-route.ts';
import { ENV, newFolder, Program, ROOT, start } from './support/program.ts';

const TIMEOUT_MS = 30_000;

/** They would change the service if it read them: only the note may have this value. */
const HOSTILE = Object.fromEntries(VARIABLES.map((name) => [name, '\n']));

/** Timers, clocks and queues that a test suite can fake. Node has fakes of the first four and of two more. */
const TIMERS = ['setTimeout', 'setInterval', 'setImmediate', 'Date'];
const OTHERS = ['performance', 'hrtime', 'queueMicrotask'];

/** Each timer alone, and all together, as rows of `test.each`. */
const casesOf = (names: readonly string[]) =>
  JSON.stringify([...names.map((name) => [name]), names]);

test('each file that names the version of the package has that of package.json', () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const code = 'openapi.json src/version.js src/docs.html examples/node-test/package.json';
  const rest = 'Dockerfile README.md docs/operations.md deploy/kubernetes.yaml';
  const named = /(?:"version": "|VERSION\W+|<small>|notes-users[:-])(\d+\.\d+\.\d+)/g;
  for (const file of `${code} ${rest}`.split(' ')) {
    const found = readFileSync(join(ROOT, file), 'utf8').matchAll(named);
    const lines = new Set(Array.from(found, ([, one]) => `${file}: ${one}`));
    assert.deepEqual([...lines], [`${file}: ${version}`]);
  }
});

describe('the package', () => {
  let folder = '';
  let tarball = '';
  let packed: readonly string[] = [];

  before(() => {
    folder = newFolder();
    cpSync(join(ROOT, 'examples/node-test'), folder, { recursive: true });
    const npm = (cwd: string, ...args: readonly string[]) =>
      execFileSync('npm', args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
    const list = JSON.parse(npm(ROOT, 'pack', '--json', '--silent', '--pack-destination', folder));
    type Packed = { filename: string; files: { path: string }[] };
    const [{ filename, files }] = Object.values(list) as [Packed];
    tarball = filename;
    packed = files.map(({ path }) => path);
    npm(folder, 'install', '--no-audit', '--no-fund', '--prefer-offline', join(folder, filename));
    mkdirSync(join(folder, 'data'));
    const source = readFileSync(join(ROOT, 'test/support/every-route.ts'), 'utf8');
    const script = stripTypeScriptTypes(source).replaceAll(/^export /gm, '');
    const exported = 'module.exports = { everyRoute, STATUSES };';
    writeFileSync(join(folder, 'every-route.cjs'), `${script}\n${exported}`);
  });

  /** Installs packages and runs one of their programs, which must exit with 0. Without the registry, skips the test. */
  function runTool(t: TestContext, packages: readonly string[], ...command: readonly string[]) {
    const options = { cwd: folder, env: ENV, encoding: 'utf8', timeout: 240_000 } as const;
    const flags = ['--no-audit', '--no-fund', '--no-save', '--prefer-offline'];
    const install = spawnSync('npm', ['install', ...flags, tarball, ...packages], options);
    if (/ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT/.test(install.stderr))
      return t.skip('needs the registry of npm');
    assert.equal(install.status, 0, install.stderr);
    const { status, stdout, stderr } = spawnSync('npx', command, options);
    assert.equal(status, 0, stdout + stderr);
  }

  function run(program: string, ...args: readonly string[]) {
    const env = { ...ENV, ...HOSTILE };
    return spawnSync(program, args, { cwd: folder, env, encoding: 'utf8', timeout: TIMEOUT_MS });
  }
  const runNode = (...args: readonly string[]) => run(process.execPath, ...args);

  test('9.2 the suite of examples/node-test passes with hostile environment variables', () => {
    // It installs the output of npm pack, not a name of the registry.
    const manifest = readFileSync(join(ROOT, 'examples/node-test/package.json'), 'utf8');
    assert.equal(JSON.parse(manifest).devDependencies['notes-users'], `file:../../${tarball}`);
    const { status, stdout } = runNode('--test', '--test-reporter=tap', '*.test.ts');
    assert.equal(status, 0, stdout);
    assert.match(stdout, /^# pass 4$/m);
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
    const cjs = `import notes = require('notes-users');\nconst { start } = notes;\n${right}${rest}`;
    writeFileSync(join(folder, 'cjs.cts'), cjs);
    const compilerOptions = {
      ...{ target: 'es2022', lib: ['es2022'], module: 'nodenext', types: ['node'], noEmit: true },
      ...{ strict: true, skipLibCheck: false, allowImportingTsExtensions: true },
    };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions }));
    const { status, stdout } = spawnSync('tsc', ['--project', folder], { encoding: 'utf8' });
    assert.deepEqual([status, stdout], [0, '']);
  });

  for (const [name, ...command] of [
    ['publint@0.3.25', 'publint'],
    ['@arethetypeswrong/cli@0.18.5', 'attw', '--no-color'],
  ]) {
    test(`9.6 ${command[0]} finds no problem for any resolver`, (t) => {
      runTool(t, [String(name)], ...command, tarball);
    });
  }

  const JSDOM = `
    const { setTimeout: begin, setInterval: repeat } = globalThis;
    globalThis.setTimeout = (...args) => Number(begin(...args));
    globalThis.setInterval = (...args) => Number(repeat(...args));
    delete globalThis.setImmediate;
    delete globalThis.clearImmediate;`;
  const fake = (apis: string) =>
    `require('node:test').mock.timers.enable({ apis: '${apis}'.split(',') });`;
  for (const [where, before, after] of [
    ["in jsdom, whose timers are not node's", JSDOM, ''],
    ...[...TIMERS, 'scheduler.wait', 'AbortSignal.timeout', TIMERS.join()].map(
      (apis) => [`while node:test fakes ${apis}`, '', fake(apis)] as const,
    ),
  ] as const) {
    test(`9.6 9.9 with require(), ${where}: every request is served, and close() ends`, () => {
      const code = `${before}
        const { start } = require('notes-users');
        const { everyRoute } = require('./every-route.cjs');
        ${after}
        everyRoute(start).then((statuses) => console.log(statuses));`;
      const { status, stdout, stderr } = runNode('--eval', code);
      assert.deepEqual([status, stdout, stderr], [0, `${STATUSES}\n`, '']);
    });
  }

  test("9.2 9.6 in a context whose Error is not node's, as in Jest, nothing is printed, and /ready says why Postgres is unreachable", () => {
    const code = `
      const { compileFunction, createContext } = require('node:vm');
      const path = require.resolve('notes-users');
      const parsingContext = createContext({ ...globalThis, AbortController, Buffer, process, URL });
      const parameters = ['module', 'require', '__dirname'];
      const load = compileFunction(fs.readFileSync(path, 'utf8'), parameters, { parsingContext });
      const loaded = {};
      load(loaded, require, require('node:path').dirname(path));
      const settings = { DATABASE_URL: 'postgres://u@127.0.0.1:1/d', DATABASE_TIMEOUT_MS: 100, ADMIN_PORT: 0 };
      loaded.exports.start(settings).then(async (service) => {
        await fetch(service.url + '/users');
        const ready = await fetch(service.adminUrl + '/ready');
        console.log(await ready.text());
        await service.close();
      });`;
    const { status, stdout, stderr } = runNode('--eval', code);
    const fault = 'not ready: store unavailable: connect ECONNREFUSED 127.0.0.1:1\n\n';
    assert.deepEqual([status, stdout, stderr], [0, fault, '']);
  });

  for (const pool of ['forks', 'threads', 'vmForks', 'vmThreads']) {
    test(`9.6 9.9 vitest in ${pool} fakes each timer alone, and all together`, (t) => {
      const code = `
        import { afterEach, expect, test, vi } from 'vitest';
        import { start } from 'notes-users';
        import { everyRoute, STATUSES } from './every-route.cjs';
        afterEach(() => vi.useRealTimers());
        test.each(${casesOf([...TIMERS, ...OTHERS])})('fakes %s', async (...toFake) => {
          vi.useFakeTimers({ toFake });
          expect(await everyRoute(start)).toBe(STATUSES);
        });`;
      writeFileSync(join(folder, 'fake.test.mjs'), code);
      runTool(t, ['vitest@5.1.1'], 'vitest', 'run', '--pool', pool, 'fake.test.mjs');
    });
  }

  test('9.6 9.9 jest fakes each timer alone, and all together', (t) => {
    const all = [...TIMERS, ...OTHERS, 'nextTick'];
    const code = `
      const { start } = require('notes-users');
      const { everyRoute, STATUSES } = require('./every-route.cjs');
      afterEach(() => jest.useRealTimers());
      test.each(${casesOf(all)})('fakes %s', async (...faked) => {
        const doNotFake = ${JSON.stringify(all)}.filter((name) => !faked.includes(name));
        jest.useFakeTimers({ doNotFake });
        expect(await everyRoute(start)).toBe(STATUSES);
      });`;
    writeFileSync(join(folder, 'fake.jest.cjs'), code);
    runTool(t, ['jest@30.5.2'], 'jest', '--testRegex', 'fake.jest.cjs');
  });

  test('9.7 npx notes-users runs the program', () => {
    const { status, stderr } = run('npx', '--offline', 'notes-users');
    assert.match(stderr, /^PORT: contains .+\n(?:.+\n)*TLS_KEY_FILE: /m);
    assert.equal(status, 78);
  });

  for (const runtime of ['Bun', 'Deno']) {
    test(`9.7 in ${runtime}, start() rejects with one line, and the program prints it and exits`, () => {
      const name = runtime.toLowerCase();
      const other = ['--import', `data:text/javascript,process.versions.${name}="1.4.5"`];
      const line = `notes-users needs Node 24 or newer, and this is ${runtime} 1.4.5. Install one from https://nodejs.org.\n`;
      const code = `require('notes-users').start().catch((err) => console.log(err.message))`;
      assert.equal(runNode(...other, '--eval', code).stdout, line);
      const { status, stderr } = runNode(...other, 'node_modules/notes-users/dist/main.cjs');
      assert.deepEqual([status, stderr], [1, line]);
    });
  }

  test('3.18 the build has a module http/form.js, which exports parseForm', async () => {
    const { parseForm } = await import(join(ROOT, 'dist/http/form.js'));
    assert.deepEqual(parseForm('a[b]=1'), { a: { b: '1' } });
  });

  test('9.8 it contains only the files that a user needs, and imported starts nothing', async () => {
    const schema = globSync('db/*/*.sql', { cwd: ROOT });
    const built = ['dist/main.cjs', 'dist/start.cjs', 'dist/start.d.cts'];
    const rest = ['LICENSE', 'README.md', 'openapi.json', 'package.json', 'src/docs.html'];
    assert.deepEqual(packed.toSorted(), [...schema, ...built, ...rest].sort());
    const types = readFileSync(join(folder, 'node_modules/notes-users/dist/start.d.cts'), 'utf8');
    const exported = Array.from(types.matchAll(/^export .*?(\w+)(?: \{|\()/gm), ([, name]) => name);
    assert.deepEqual(exported, ['Settings', 'RunningService', 'start']);
    assert.doesNotMatch(types, /unset: .* Default: /);
    const library = await import(join(folder, 'node_modules/notes-users/dist/start.cjs'));
    assert.deepEqual(Object.keys(library).sort(), ['default', 'module.exports', 'start']);
  });

  /** Returns the command of the image, with its flags. It runs in `/`. */
  function entrypoint(): readonly string[] {
    const { Entrypoint } = settingsIn(readFileSync(join(ROOT, 'Dockerfile'), 'utf8'));
    const flags = (Entrypoint as string[]).slice(1, -1);
    assert.ok(flags.includes('--permission'));
    const program = join(folder, 'node_modules/notes-users/dist/main.cjs');
    const here = flags.map((flag) => flag.replace(/=\/(?:app\/|(?=data\/))/, `=${folder}/`));
    return ['sh', '-c', 'cd /; exec "$0" "$@"', process.execPath, ...here, program];
  }

  test('6.19 with the flags of the image it opens :memory:, and opens and copies a file', async () => {
    for (const path of [':memory:', 'data/service.db', 'data/a/b/service.db']) {
      const DATABASE_URL = `sqlite:${path.startsWith(':') ? path : join(folder, path)}`;
      await using running = await start({ DATABASE_URL }, entrypoint());
      assert.equal((await send(`${running.url}/users`)).status, 200);
      if (path.startsWith(':')) continue;
      const args = ['--backup', join(folder, `${path}.copy`)];
      await using copying = new Program({ DATABASE_URL }, args, entrypoint());
      assert.equal((await copying.exited).code, 0, copying.stderr);
    }
  });

  test('1.6 5.2 with the flags of the image node may read secrets, and no other file', async () => {
    const secret = '/run/secrets/not_mounted';
    const file = '/etc/passwd';
    const files = { NOTE_TITLE_FILE: file, TLS_CERT_FILE: file, TLS_KEY_FILE: file };
    await using reading = new Program({ AUTH_PASSWORD_FILE: secret, ...files }, [], entrypoint());
    assert.equal((await reading.exited).code, 78);
    const [missing, ...rest] = reading.stderr.trimEnd().split('\n');
    assert.match(missing!, RegExp(`^AUTH_PASSWORD_FILE: ENOENT: .*${secret}`));
    const said = `node may not read ${file}; in the image, mount it below /run/secrets; expected `;
    const names = rest.map((line) => line.split(`: ${said}`)[0]);
    assert.deepEqual(names, Object.keys(files));
    await using opening = new Program({ DATABASE_URL: `sqlite:${file}` }, [], entrypoint());
    assert.equal((await opening.exited).code, 1);
    assert.match(opening.stderr, RegExp(`^cannot open the database ${file}: .+ below /data\n$`));
  });
});
