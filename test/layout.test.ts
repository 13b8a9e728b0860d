// The layout of src: which file may import which, and what stands in one place only. What an
// auditor may rely on without reading every file.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { join, posix } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const SRC = fileURLToPath(new URL('../src/', import.meta.url));
interface File {
  /** Relative to src, with slashes. */
  readonly path: string;
  readonly text: string;
  /** Without comments. */
  readonly code: string;
  readonly imports: readonly Import[];
}

interface Import {
  /** A file relative to src, a module of node, or a package. */
  readonly from: string;
  readonly isType: boolean;
}

const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((path) => path.endsWith('.ts'))
  .map((path) => read(path.replaceAll('\\', '/')))
  .sort((a, b) => (a.path < b.path ? -1 : 1));

function read(path: string): File {
  const text = readFileSync(join(SRC, path), 'utf8');
  const code = text
    .replace(/\/\*[\s\S]*?\*\//g, (comment) => comment.replace(/[^\n]/g, ' '))
    .replace(/(^|\s)\/\/.*$/gm, '$1');
  return { path, text, code, imports: importsOf(path, code) };
}

function importsOf(path: string, code: string): Import[] {
  const fixed = [...code.matchAll(/^(?:import|export)\s([^;]*?)\sfrom\s+'([^']+)'/gm)].map(
    ([, names = '', from = '']) => ({ from, isType: isTypeOnly(names) }),
  );
  const bare = [...code.matchAll(/^import\s+'([^']+)'/gm)].map(([, from = '']) => ({
    from,
    isType: false,
  }));
  const late = [
    ...code.matchAll(/\b(?:import|createRequire\(import\.meta\.url\))\(\s*'([^']+)'/g),
  ].map(([, from = '']) => ({
    from,
    isType: false,
  }));
  const folder = posix.dirname(path);
  return [...fixed, ...bare, ...late].map(({ from, isType }) => ({
    from: from.startsWith('.') ? posix.normalize(posix.join(folder, from)) : from,
    isType,
  }));
}

/** `type { A }`, or braces in which every name has `type` before it. */
function isTypeOnly(names: string): boolean {
  if (/^type\s/.test(names)) return true;
  const inBraces = /^\{([\s\S]*)\}$/.exec(names.trim())?.[1];
  const list = inBraces
    ?.split(',')
    .map((name) => name.trim())
    .filter(Boolean) ?? ['value'];
  return list.every((name) => name.startsWith('type '));
}

/** The files of src whose code holds the pattern. */
function filesWith(pattern: RegExp): string[] {
  return files.filter(({ code }) => pattern.test(code)).map(({ path }) => path);
}

const DOMAIN = ['user.ts'];
/** Everything that wires the parts together, and is itself no part. */
const TOP = ['main.ts', 'service.ts', 'start.ts'];

/** What the files of a folder may import beside their own. `types`: by `import type` only. */
const RULES: {
  readonly [place: string]: { values: (string | RegExp)[]; types?: (string | RegExp)[] };
} = {
  'user.ts': { values: [] },
  'version.ts': { values: [] },
  'http/': { values: [/^node:/, 'user.ts'] },
  'auth/': { values: ['node:crypto', 'node:buffer', 'http/errors.ts', 'http/address.ts'] },
  'store/': { values: [/^node:/, 'postgres', 'user.ts'] },
  'api/': { values: ['user.ts', /^http\//, /^auth\//], types: ['route.ts'] },
  'ops/': {
    values: [
      /^node:/,
      'http/reply.ts',
      'http/errors.ts',
      'http/message.ts',
      'user.ts',
      'version.ts',
    ],
  },
  'docs.ts': { values: ['node:crypto', 'node:fs'] },
  'route.ts': { values: [], types: ['docs.ts', /^node:/, /^http\//, /^auth\//, 'user.ts'] },
  'routes.ts': { values: [/^api\//], types: ['route.ts'] },
  'app.ts': {
    values: ['node:crypto', /^http\//, 'auth/access.ts'],
    types: ['node:http', 'route.ts'],
  },
  'config.ts': {
    values: ['node:buffer', 'node:fs', 'node:module', 'node:tls', 'ops/log.ts', 'store/url.ts'],
    types: ['ops/server.ts'],
  },
};

function isIn(list: readonly (string | RegExp)[], from: string): boolean {
  return list.some((entry) => (typeof entry === 'string' ? entry === from : entry.test(from)));
}

describe('imports', () => {
  test('the files of src are read, and their imports', () => {
    const { imports } = files.find(({ path }) => path === 'auth/access.ts')!;
    assert.ok(files.length > 25);
    assert.ok(imports.some(({ from, isType }) => from === 'auth/authorization.ts' && !isType));
    assert.ok(imports.some(({ from, isType }) => from === 'auth/jwt.ts' && isType));
  });

  for (const { path, imports } of files.filter((file) => !TOP.includes(file.path))) {
    const place = Object.keys(RULES).find((key) =>
      key.endsWith('/') ? path.startsWith(key) : path === key,
    );
    test(`${path} imports what ${place ?? 'no rule'} may import`, () => {
      assert.ok(
        place,
        'no rule of this test covers the file: add it to the table of imports first',
      );
      const { values, types = [] } = RULES[place]!;
      const ofItsOwn = place.endsWith('/') ? [new RegExp(`^${place}`)] : [];
      const allowed = [...values, ...ofItsOwn];
      const wrong = imports.filter(
        ({ from, isType }) => !isIn(allowed, from) && !(isType && isIn(types, from)),
      );
      assert.deepEqual(wrong, []);
    });
  }

  test('the domain imports nothing', () => {
    assert.deepEqual(
      files.filter(({ path }) => DOMAIN.includes(path)).flatMap(({ imports }) => imports),
      [],
    );
  });

  test('main.ts is imported by nothing', () => {
    const importers = files.filter(({ imports }) => imports.some(({ from }) => from === 'main.ts'));
    assert.deepEqual(
      importers.map(({ path }) => path),
      [],
    );
  });

  test('postgres is the one package, and node:http and node:net reach a handler as types only', () => {
    const packages = files.flatMap(({ imports }) =>
      imports.map(({ from }) => from).filter((from) => !from.endsWith('.ts') && !isBuiltin(from)),
    );
    assert.deepEqual([...new Set(packages)], ['postgres']);
    const handlers = files.filter(({ path }) => path.startsWith('api/'));
    assert.deepEqual(
      handlers.flatMap(({ imports }) => imports.filter(({ from }) => from.startsWith('node:'))),
      [],
    );
  });

  test('no two files import each other’s values in a circle', () => {
    const graph = new Map(
      files.map(({ path, imports }) => [
        path,
        imports.filter(({ isType }) => !isType).map(({ from }) => from),
      ]),
    );
    const reach = (from: string, seen = new Set<string>()): Set<string> => {
      for (const next of graph.get(from) ?? []) {
        if (!seen.has(next)) reach(next, seen.add(next));
      }
      return seen;
    };
    assert.deepEqual(
      files.map(({ path }) => path).filter((path) => reach(path).has(path)),
      [],
    );
  });
});

describe('one place only', () => {
  for (const { why, pattern, places } of [
    { why: 'process', pattern: /\bprocess\./, places: ['main.ts', 'store/connection.ts'] },
    {
      why: 'node:process',
      pattern: /'(?:node:)?process'/,
      places: ['ops/runtime.ts', 'store/connection.ts', 'store/file.ts'],
    },
    { why: 'process.env', pattern: /\bprocess\.env\b/, places: ['main.ts', 'store/connection.ts'] },
    { why: 'createServer', pattern: /\bcreateServer\b/, places: ['ops/server.ts'] },
    { why: 'writeHead', pattern: /\bwriteHead\b/, places: ['http/reply.ts'] },
    {
      why: 'errors to replies',
      pattern: /instanceof InvalidUser/,
      places: ['http/errors.ts'],
    },
    {
      why: 'a taken email, to a reply and as no failure of the store',
      pattern: /instanceof EmailTaken/,
      places: ['http/errors.ts', 'ops/measured.ts'],
    },
    { why: 'the routes’ table', pattern: /satisfies RouteTable/, places: ['routes.ts'] },
    { why: 'node:sqlite', pattern: /'node:sqlite'/, places: ['store/file.ts', 'store/sqlite.ts'] },
    { why: 'console', pattern: /\bconsole\./, places: [] },
    { why: 'eval', pattern: /\beval\(|new Function\b|node:vm/, places: [] },
    { why: 'node:child_process', pattern: /child_process/, places: [] },
  ]) {
    test(`${why}: ${places.join(', ') || 'nowhere'}`, () =>
      assert.deepEqual(filesWith(pattern), places));
  }
});

describe('traps of the drivers', () => {
  for (const { why, pattern } of [
    { why: 'sql.begin()', pattern: /\bsql\.begin\(/ },
    { why: 'reserve()', pattern: /\.reserve\(/ },
    { why: 'setHeader(), which costs a tenth of a request', pattern: /\.setHeader\(/ },
    { why: 'insecureHTTPParser', pattern: /insecureHTTPParser: true/ },
    {
      why: 'SQL put together from values',
      pattern: /`[^`]*\b(?:select|insert|update|delete)\b[^`]*'\$\{/i,
    },
  ]) {
    test(`${why} stands nowhere`, () => assert.deepEqual(filesWith(pattern), []));
  }

  test('a statement with RETURNING is never run with get()', () => {
    const calls = filesWith(/'node:sqlite'/).flatMap((name) => {
      const { code } = files.find(({ path }) => path === name)!;
      // The statement is prepared there, or is a property of that name: either way with its text,
      // and not one that could be any statement.
      return code
        .split('.get(')
        .slice(0, -1)
        .map((before) => {
          const property = /(\w+)$/.exec(before)?.[1];
          const text = property
            ? new RegExp(`\\b${property}: db\\.prepare\\(([^)]*)\\)`).exec(code)?.[1]
            : /db\.prepare\(([^)]*)\)$/.exec(before)?.[1];
          return text ?? `${name}: ${before.slice(-40)}`;
        });
    });
    assert.ok(calls.some((text) => text.includes('where id = ?')));
    assert.deepEqual(
      calls.filter((text) => !/^['`][^'`]*['`]$/.test(text) || /returning/i.test(text)),
      [],
    );
  });
});

describe('files', () => {
  test('no folder holds what has no place', () => {
    const names = /(?:^|\/)(?:utils?|helpers?|common|types|misc|shared|lib)(?:\/|\.ts$)/;
    assert.deepEqual(
      files.map(({ path }) => path).filter((path) => names.test(path)),
      [],
    );
  });

  test('names are lower case, one word', () => {
    const odd = files
      .map(({ path }) => path)
      .filter((path) => !/^(?:[a-z]+\/)?[a-z]+\.ts$/.test(path));
    assert.deepEqual(odd, []);
  });

  test('there is no default export, no enum, no any and no ignored type error', () => {
    assert.deepEqual(filesWith(/\bexport default\b|\benum \w+ \{|: any\b|<any>|as any\b/), []);
    assert.deepEqual(
      files
        .filter(({ text }) => /@ts-(?:ignore|expect-error|nocheck)/.test(text))
        .map(({ path }) => path),
      [],
    );
  });
});
