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
import { fill, NO_GO } from '../support/tools.ts';

const CACHE = process.env.CLIENTS_CACHE ?? join(tmpdir(), `notes-users-clients-${userInfo().uid}`);
const TOOLS = join(import.meta.dirname, 'tools');
const TIMEOUT_MS = 1_500_000;

const GO_PACKAGE = 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2';
const DEPENDENCY_PLUGIN = 'org.apache.maven.plugins:maven-dependency-plugin:3.9.0';

/** Reason to skip the tests of a language; `false` if the machine has it. */
const ABSENT = {
  java: absent('java', 'javac', 'mvn'),
  go: NO_GO,
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

/** Reasons to skip the tests of a tool; `false` if it is installed. Installs the tools that the cache lacks. */
export const MISSING = await allOf({
  generator: ABSENT.java || fill(FOLDERS.jars, 'openapi-generator', fetchGenerator),
  python: ABSENT.python || fill(FOLDERS.venv, 'openapi-python-client', installPython),
  go: ABSENT.go || fill(FOLDERS.go, 'oapi-codegen', installGo),
});

async function allOf<K extends string>(reasons: Record<K, string | Promise<string | false>>) {
  const found = Object.entries<string | Promise<string | false>>(reasons);
  const settled = found.map(async ([name, reason]) => [name, await reason] as const);
  return Object.fromEntries(await Promise.all(settled)) as Record<K, string | false>;
}

async function fetchGenerator(): Promise<void> {
  const goal = [`${DEPENDENCY_PLUGIN}:copy-dependencies`, `-Dmaven.repo.local=${CACHE}/m2`];
  const maven = ['-q', '-B', '-f', join(TOOLS, 'pom.xml'), ...goal];
  const program = '-DincludeArtifactIds=openapi-generator-cli';
  await run('mvn', [...maven, program, `-DoutputDirectory=${FOLDERS.jars}`]);
  const libraries = '-DexcludeArtifactIds=openapi-generator-cli';
  await run('mvn', [...maven, libraries, `-DoutputDirectory=${FOLDERS.jars}/libraries`]);
}

async function installPython(): Promise<void> {
  await run('python3', ['-m', 'venv', FOLDERS.venv]);
  await run(PYTHON, ['-m', 'pip', 'install', '-q', '-r', join(TOOLS, 'requirements.txt')]);
}

/** Installs oapi-codegen, and the Go modules of the clients. */
async function installGo(): Promise<void> {
  await run('go', ['install', GO_PACKAGE], { env: { GOBIN: FOLDERS.go } });
  for (const name of ['go.mod', 'go.sum']) copyFileSync(join(TOOLS, name), join(FOLDERS.go, name));
  await run('go', ['mod', 'download'], { cwd: FOLDERS.go });
}
