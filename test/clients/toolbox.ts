// Installs third-party programs at pinned versions with their package managers into one cache
// folder. They write nothing to the source tree or the home folder.
import assert from 'node:assert/strict';
import { type ExecFileException, execFile, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, readFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { find } from '../support/daemon.ts';
import { fill, isFilled, whyNoGo } from '../support/tools.ts';

const CACHE = process.env.CLIENTS_CACHE ?? join(tmpdir(), `notes-users-clients-${userInfo().uid}`);
const TOOLS = join(import.meta.dirname, 'tools');
const TIMEOUT_MS = 1_500_000;

const GO_PACKAGE = 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2';
const DEPENDENCY_PLUGIN = 'org.apache.maven.plugins:maven-dependency-plugin:3.9.0';

/** Reason to skip the tests of a language; `false` if the machine has it. */
const ABSENT = {
  java: absent('java', 'javac', 'mvn'),
  go: whyNoGo(),
  python: absent('python3') || whyNoVenv(),
} as const;

function absent(...programs: readonly string[]): string | false {
  const missing = programs.filter((program) => find(program) === undefined);
  return missing.length > 0 && `not installed: ${missing.join(', ')}`;
}

function whyNoVenv(): string | false {
  const check = 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))';
  return spawnSync('python3', ['-c', check]).status !== 0 && 'python3 has no venv';
}

/** Folder of each tool. It changes with the version. */
const FOLDERS = {
  jars: folderOf('jars', readFileSync(join(TOOLS, 'pom.xml'))),
  venv: folderOf('venv', readFileSync(join(TOOLS, 'requirements.txt'))),
  go: folderOf('go', GO_PACKAGE + readFileSync(join(TOOLS, 'go.sum'))),
};

function folderOf(name: string, pin: string | Buffer): string {
  return join(CACHE, `${name}-${createHash('sha256').update(pin).digest('hex').slice(0, 12)}`);
}

export const GENERATOR_JAR = join(FOLDERS.jars, 'openapi-generator-cli-7.25.0.jar');
export const CLASS_PATH = join(FOLDERS.jars, 'libraries', '*');
export const OAPI_CODEGEN = join(FOLDERS.go, 'oapi-codegen');
export const PYTHON = join(FOLDERS.venv, 'bin/python');
export const OPENAPI_PYTHON_CLIENT = join(FOLDERS.venv, 'bin/openapi-python-client');

const { NODE_TEST_CONTEXT: _, GOFLAGS = '', ...inherited } = process.env;

/** Environment with the caches of all package managers in the cache folder. */
const ENV = {
  ...inherited,
  GOPATH: join(CACHE, 'go'),
  GOCACHE: join(CACHE, 'go-build'),
  GOFLAGS: `${GOFLAGS} -modcacherw -buildvcs=false`.trim(),
  PIP_CACHE_DIR: join(CACHE, 'pip'),
  PYTHONDONTWRITEBYTECODE: '1',
};

export interface Options {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/**
 * Runs a program.
 * @returns stdout
 * @throws an AssertionError with all of its output if its exit status is not 0; an Error if it
 *   can't be started or doesn't end in time
 */
export async function run(
  program: string,
  args: readonly string[],
  { cwd = tmpdir(), env = {} }: Options = {},
): Promise<string> {
  const options = { cwd, env: { ...ENV, ...env }, timeout: TIMEOUT_MS, maxBuffer: 2 ** 26 };
  try {
    return (await promisify(execFile)(program, args, options)).stdout;
  } catch (err) {
    const { message, code, stdout, stderr } = err as ExecFileException;
    const text = `${message}\n${stdout}${stderr}`;
    if (typeof code === 'number') assert.fail(text);
    throw new Error(text);
  }
}

interface Tool {
  readonly name: string;
  readonly folder: string;
  /** Reason why this machine can't install the tool; `false` if it can. */
  readonly absent: string | false;
  readonly download: () => Promise<unknown>;
}

const generator: Tool = {
  name: 'openapi-generator',
  folder: FOLDERS.jars,
  absent: ABSENT.java,
  async download() {
    const goal = [`${DEPENDENCY_PLUGIN}:copy-dependencies`, `-Dmaven.repo.local=${CACHE}/m2`];
    const maven = ['-q', '-B', '-f', join(TOOLS, 'pom.xml'), ...goal];
    const program = '-DincludeArtifactIds=openapi-generator-cli';
    await run('mvn', [...maven, program, `-DoutputDirectory=${FOLDERS.jars}`]);
    const libraries = '-DexcludeArtifactIds=openapi-generator-cli';
    await run('mvn', [...maven, libraries, `-DoutputDirectory=${FOLDERS.jars}/libraries`]);
  },
};

const python: Tool = {
  name: 'openapi-python-client',
  folder: FOLDERS.venv,
  absent: ABSENT.python,
  async download() {
    await run('python3', ['-m', 'venv', FOLDERS.venv]);
    await run(PYTHON, ['-m', 'pip', 'install', '-q', '-r', join(TOOLS, 'requirements.txt')]);
  },
};

const go: Tool = {
  name: 'oapi-codegen and the Go modules of the clients',
  folder: FOLDERS.go,
  absent: ABSENT.go,
  async download() {
    await run('go', ['install', GO_PACKAGE], { env: { GOBIN: FOLDERS.go } });
    for (const name of ['go.mod', 'go.sum']) {
      copyFileSync(join(TOOLS, name), join(FOLDERS.go, name));
    }
    await run('go', ['mod', 'download'], { cwd: FOLDERS.go });
  },
};

/** Reasons why tools could not be installed, by the tool's name. */
const FAULTS: Readonly<Record<string, string>> = JSON.parse(process.env.CLIENTS_FAULTS ?? '{}');

/** Reason to skip the tests of a tool; `false` if it is installed. */
export const MISSING = {
  generator: missing(generator),
  python: missing(python),
  go: missing(go),
} as const;

function missing({ name, folder, absent }: Tool): string | false {
  if (absent) return absent;
  if (isFilled(folder)) return false;
  return FAULTS[name] ?? `not installed: ${name} (npm run test:clients does that)`;
}

/** Installs the tools that are not in the cache. `MISSING` has the reason of each failure. */
export async function install(): Promise<void> {
  const faults = [generator, python, go].map(async ({ name, folder, absent, download }) => [
    name,
    absent ? undefined : await fill(folder, name, download),
  ]);
  process.env.CLIENTS_FAULTS = JSON.stringify(Object.fromEntries(await Promise.all(faults)));
}
