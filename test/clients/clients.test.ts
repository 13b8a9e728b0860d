// Tests openapi.json with third-party generators. Each generates a client, the client compiles, and
// a program that uses it completes the journey. test/client.test.ts does the same with
// openapi-typescript. `.ci/tools` installs the generators.
import assert from 'node:assert/strict';
import { type ExecFileException, type ExecFileOptions, execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { find } from '../support/daemon.ts';
import { JOURNEY } from '../support/journey.ts';
import { newFolder, PASSWORD, ROOT, start, USER } from '../support/program.ts';
import { missing, requireTools } from '../support/tools.ts';

const DOCUMENT = join(ROOT, 'openapi.json');
const JOURNEYS = join(import.meta.dirname, 'journeys');
const TIMEOUT_MS = 900_000;

const NO_GENERATOR = missing('openapi-generator-cli', 'java');
const NO_JAVA = NO_GENERATOR || missing('javac', 'mvn');
const NO_GO = missing('go', 'oapi-codegen');
const NO_PYTHON = missing('openapi-python-client');
// That of the virtual environment, with what the clients need.
const PYTHON = join(dirname(find('openapi-python-client') ?? ''), 'python');

type Command = readonly [program: string, args: readonly string[], options?: ExecFileOptions];

interface Client {
  /** Name of the generator, and of its file in `journeys/`. */
  readonly name: string;
  readonly skip: string | false;
  /** Generates and compiles the client in a new folder. @returns the command of the journey */
  readonly make: (folder: string) => Promise<Command>;
}

/** Runs a program. @returns stdout @throws an AssertionError if it fails, unless Maven can't download */
async function run(program: string, args: readonly string[], options: ExecFileOptions = {}) {
  const limits = { timeout: TIMEOUT_MS, maxBuffer: 2 ** 26 };
  try {
    return String((await promisify(execFile)(program, args, { ...limits, ...options })).stdout);
  } catch (err) {
    const { message, code, stdout, stderr } = err as ExecFileException;
    const text = `${message}\n${stdout}${stderr}`;
    if (typeof code === 'number' && !/Could not (resolve|transfer)/.test(text)) assert.fail(text);
    throw new Error(text);
  }
}

async function generate(language: string, output: string, ...more: string[]): Promise<void> {
  const args = ['generate', '-i', DOCUMENT, '-g', language, '-o', output, ...more];
  await run('openapi-generator-cli', args);
}

/** Builds a Go module with the client as a package and the journey as its program. */
async function buildGo(folder: string, journey: string) {
  for (const name of ['go.mod', 'go.sum']) {
    copyFileSync(join(import.meta.dirname, name), join(folder, name));
  }
  copyFileSync(join(JOURNEYS, journey), join(folder, 'main.go'));
  const program = join(folder, 'journey');
  await run('go', ['build', '-mod=readonly', '-o', program, '.'], { cwd: folder });
  return [program, []] as const;
}

async function compilePython(folder: string, journey: string) {
  await run(PYTHON, ['-m', 'compileall', '-q', folder]);
  const env = { ...process.env, PYTHONPATH: folder };
  return [PYTHON, [join(JOURNEYS, journey)], { env }] as const;
}

const CLIENTS: readonly Client[] = [
  {
    name: 'openapi-generator-python.py',
    skip: NO_GENERATOR || NO_PYTHON,
    async make(folder) {
      await generate('python', folder);
      return compilePython(folder, this.name);
    },
  },
  {
    name: 'openapi-generator-go.go',
    skip: NO_GENERATOR || NO_GO,
    async make(folder) {
      const properties = 'packageName=openapi,withGoMod=false';
      const output = join(folder, 'openapi');
      await generate('go', output, '--additional-properties', properties);
      return buildGo(folder, this.name);
    },
  },
  {
    name: 'openapi-generator-java.java',
    skip: NO_JAVA,
    async make(folder) {
      await generate('java', folder, '--library', 'native');
      copyFileSync(join(JOURNEYS, this.name), join(folder, 'src/main/java/Journey.java'));
      const without = ['test', 'javadoc', 'source'].map((part) => `-Dmaven.${part}.skip`);
      await run('mvn', ['-q', '-B', 'package', ...without], { cwd: folder });
      return ['java', ['-cp', 'target/classes:target/lib/*', 'Journey'], { cwd: folder }];
    },
  },
  {
    name: 'openapi-generator-typescript-fetch.ts',
    skip: NO_GENERATOR,
    async make(folder) {
      await generate('typescript-fetch', join(folder, 'api'));
      symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
      copyFileSync(join(JOURNEYS, this.name), join(folder, 'journey.ts'));
      const compilerOptions = {
        ...{ target: 'es2022', module: 'node16', types: ['node'], strict: true },
        ...{ rootDir: '.', outDir: 'out', skipLibCheck: true },
      };
      const config = { compilerOptions, files: ['journey.ts'] };
      writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
      const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
      await run(process.execPath, [compiler, '-p', folder]);
      return [process.execPath, [join(folder, 'out/journey.js')]];
    },
  },
  {
    name: 'oapi-codegen.go',
    skip: NO_GO,
    async make(folder) {
      const output = join(folder, 'oapi/oapi.go');
      mkdirSync(join(folder, 'oapi'));
      const parts = ['-generate', 'types,client', '-package', 'oapi'];
      await run('oapi-codegen', [...parts, '-o', output, DOCUMENT]);
      return buildGo(folder, this.name);
    },
  },
  {
    name: 'openapi-python-client.py',
    skip: NO_PYTHON,
    async make(folder) {
      const output = join(folder, 'client');
      const paths = ['--path', DOCUMENT, '--output-path', output];
      await run('openapi-python-client', ['generate', ...paths, '--fail-on-warning']);
      return compilePython(output, this.name);
    },
  },
];

requireTools(NO_JAVA, NO_GO, NO_PYTHON);

describe('generated clients', { concurrency: 2 }, () => {
  for (const client of CLIENTS) {
    const { name, skip } = client;
    test(`8.1 ${name}: the client compiles and completes the journey`, { skip }, async () => {
      const [path, args, options] = await client.make(newFolder());
      await using program = await start({ PROTECT_USERS: 'true' });
      const output = await run(path, [...args, program.url, USER, PASSWORD], options);
      assert.deepEqual(JSON.parse(output), JOURNEY);
    });
  }
});
