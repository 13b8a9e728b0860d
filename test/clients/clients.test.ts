// Tests openapi.json with third-party generators. Each generates a client, the client compiles, and
// a program that uses it completes the journey on both stores. test/client.test.ts does the same
// with openapi-typescript.
import assert from 'node:assert/strict';
import { copyFileSync, cpSync, globSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { JOURNEY } from '../support/journey.ts';
import { newDatabase, newFolder, PASSWORD, ROOT, STORES, start, USER } from '../support/program.ts';
import { requireTools } from '../support/tools.ts';
import {
  CLASS_PATH,
  GENERATOR_JAR,
  MISSING,
  OAPI_CODEGEN,
  OPENAPI_PYTHON_CLIENT,
  type Options,
  PYTHON,
  run,
} from './toolbox.ts';

const DOCUMENT = join(ROOT, 'openapi.json');
const JOURNEYS = join(import.meta.dirname, 'journeys');
const TOOLS = join(import.meta.dirname, 'tools');

interface Client {
  /** Name of the generator, and of its file in `journeys/`. */
  readonly name: string;
  readonly skip: string | false;
  /** Generates and compiles the client in a new folder. @returns the command of the journey */
  readonly make: (folder: string) => Promise<readonly [string, readonly string[], Options?]>;
}

async function generate(language: string, output: string, ...more: string[]): Promise<void> {
  const args = ['generate', '-i', DOCUMENT, '-g', language, '-o', output, ...more];
  await run('java', ['-Xmx512m', '-jar', GENERATOR_JAR, ...args]);
}

/** Builds a Go module with the client as a package and the journey as its program. */
async function buildGo(folder: string, journey: string) {
  for (const name of ['go.mod', 'go.sum']) copyFileSync(join(TOOLS, name), join(folder, name));
  copyFileSync(join(JOURNEYS, journey), join(folder, 'main.go'));
  const program = join(folder, 'journey');
  await run('go', ['build', '-mod=readonly', '-o', program, '.'], { cwd: folder });
  return [program, []] as const;
}

async function compilePython(folder: string, journey: string) {
  await run(PYTHON, ['-m', 'compileall', '-q', folder]);
  return [PYTHON, [join(JOURNEYS, journey)], { env: { PYTHONPATH: folder } }] as const;
}

const CLIENTS: readonly Client[] = [
  {
    name: 'openapi-generator-python.py',
    skip: MISSING.generator || MISSING.python,
    async make(folder) {
      await generate('python', folder);
      return compilePython(folder, this.name);
    },
  },
  {
    name: 'openapi-generator-go.go',
    skip: MISSING.generator || MISSING.go,
    async make(folder) {
      const properties = 'packageName=openapi,withGoMod=false';
      const output = join(folder, 'openapi');
      await generate('go', output, '--additional-properties', properties);
      return buildGo(folder, this.name);
    },
  },
  {
    name: 'openapi-generator-java.java',
    skip: MISSING.generator,
    async make(folder) {
      await generate('java', folder, '--library', 'native');
      const classes = join(folder, 'classes');
      const sources = globSync(join(folder, 'src/main/java/**/*.java'));
      const paths = ['-d', classes, '-cp', CLASS_PATH];
      await run('javac', ['-nowarn', ...paths, ...sources, join(JOURNEYS, this.name)]);
      return ['java', ['-cp', `${classes}:${CLASS_PATH}`, 'Journey']];
    },
  },
  {
    name: 'openapi-generator-typescript-fetch.ts',
    skip: MISSING.generator,
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
    skip: MISSING.go,
    async make(folder) {
      const output = join(folder, 'oapi/oapi.go');
      mkdirSync(join(folder, 'oapi'));
      const parts = ['-generate', 'types,client', '-package', 'oapi'];
      await run(OAPI_CODEGEN, [...parts, '-o', output, DOCUMENT]);
      return buildGo(folder, this.name);
    },
  },
  {
    name: 'openapi-python-client.py',
    skip: MISSING.python,
    async make(folder) {
      const output = join(folder, 'client');
      const warnings = ['--fail-on-warning'];
      const paths = ['--path', DOCUMENT, '--output-path', output];
      await run(OPENAPI_PYTHON_CLIENT, ['generate', ...paths, ...warnings], {
        env: { PATH: `${join(PYTHON, '..')}:${process.env.PATH}` },
      });
      cpSync(output, folder, { recursive: true });
      return compilePython(folder, this.name);
    },
  },
];

requireTools(...Object.values(MISSING));

describe('generated clients', { concurrency: 2 }, () => {
  for (const client of CLIENTS) {
    describe(client.name, { skip: client.skip, concurrency: 1 }, () => {
      const folder = newFolder();
      let command: Awaited<ReturnType<Client['make']>>;

      test('8.1 the client is generated and compiles', async () => {
        command = await client.make(folder);
      });

      for (const store of STORES) {
        test(`8.1 a program with the client completes the journey (${store})`, async () => {
          await using program = await start({
            PROTECT_USERS: 'true',
            DATABASE_URL: await newDatabase(store),
          });
          const [path, args, options] = command;
          const output = await run(path, [...args, program.url, USER, PASSWORD], options);
          assert.deepEqual(JSON.parse(output), JOURNEY);
        });
      }
    });
  }
});
