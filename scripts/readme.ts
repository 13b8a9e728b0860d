// `node scripts/readme.ts` generates the tables of README.md and docs/design.md from openapi.json and src, and
// replays the console session of README.md. The tests compare the results of `renew` and `withFiles` with the pages.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SETTINGS, type Setting, VARIABLES } from '../src/config.ts';
import { freePort } from '../test/support/daemon.ts';

const ROOT = join(import.meta.dirname, '..');
const README = join(ROOT, 'README.md');
const DESIGN = join(ROOT, 'docs/design.md');
const SRC = join(ROOT, 'src');

/** Returns the README with every generated part up to date. */
export async function renew(readme: string): Promise<string> {
  const withTables = replace(replace(readme, 'routes', routeTable()), 'settings', settingTable());
  const [session = ''] = /<!-- session -->.*<!-- \/session -->/s.exec(withTables) ?? [];
  const played = await replay(Array.from(session.matchAll(BLOCK), ([, block]) => block!));
  const replayed = session.replace(BLOCK, () => `\`\`\`console\n${played.shift()}\`\`\``);
  // Leaves the file unchanged if only times, tokens and the password differ.
  if (masked(replayed) === masked(session)) return withTables;
  return withTables.replace(session, () => replayed);
}

const BLOCK = /```console\n(.*?)```/gs;

/** Replaces the values that differ between runs by fixed words. */
export function masked(text: string): string {
  return text
    .replace(/eyJ[\w-]+\.[\w-]+\.[\w-]+/g, 'TOKEN')
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME')
    .replace(/(for user admin: )\S+$/gm, '$1PASSWORD');
}

function replace(readme: string, part: string, text: string): string {
  const place = new RegExp(`(<!-- ${part} -->\n).*?(<!-- /${part} -->)`, 's');
  return readme.replace(place, (_all, start, end) => `${start}\n${text}\n\n${end}`);
}

const CREDENTIALS: Readonly<Record<string, string>> = {
  '[]': '',
  '[{"basic":[]}]': 'Basic',
  '[{"bearer":[]}]': 'Bearer token',
  '[{"bearer":[]},{}]': 'Bearer if `PROTECT_USERS`',
};

export function routeTable(): string {
  const { paths } = JSON.parse(readFileSync(join(ROOT, 'openapi.json'), 'utf8'));
  const rows = Object.entries<object>(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { security, requestBody, summary }]) => {
      const types = Object.keys(requestBody?.content ?? {}).map((type) => `\`${type}\``);
      const credentials = CREDENTIALS[JSON.stringify(security)];
      return `| \`${method.toUpperCase()} ${path}\` | ${credentials} | ${types.join(', ')} | ${summary} |`;
    }),
  );
  return ['| Route | Credentials | Body | |', '|---|---|---|---|', ...rows].join('\n');
}

function settingTable(): string {
  const rows = VARIABLES.map((name) => {
    const [{ expected }, meaning, preset]: Setting = SETTINGS[name];
    const values = expected.replace(/^(?:an integer from|one of) /, '');
    return `| \`${name}\` | ${meaning} | ${values} | ${preset ? `\`${preset}\`` : ''} |`;
  });
  return ['| Variable | Meaning | Values | Default |', '|---|---|---|---|', ...rows].join('\n');
}

/** Returns docs/design.md with the files of each claim up to date. */
export function withFiles(design: string): string {
  const claims = Object.entries(CLAIMS).map(([claim, text]) => [claim, text.split(' ')] as const);
  const claimed = claims.flatMap(([, patterns]) => patterns.flatMap(filesOf));
  const rest = filesOf('**/*.{js,ts,html}').filter((file) => !claimed.includes(file));
  const rows = [...claims, ['The rest', rest] as const].map((row) => rowOf(...row));
  return replace(design, 'files', rows.join('\n\n'));
}

function rowOf(claim: string, patterns: readonly string[]): string {
  const lines = patterns.flatMap(filesOf).reduce((sum, file) => sum + linesOf(file), 0);
  // So that few changes of src change the page.
  const rounded = (Math.round(lines / 100) * 100).toLocaleString('en');
  return `**${claim}** (about ${rounded} lines): ${patterns.map(linkTo).join(', ')}`;
}

function filesOf(pattern: string): readonly string[] {
  const found = globSync(pattern, { cwd: SRC }).sort();
  if (found.length === 0) throw new Error(`src has no file ${pattern}`);
  return found;
}

const linesOf = (file: string) => readFileSync(join(SRC, file), 'utf8').split('\n').length - 1;
// To a file, or for all of a folder to the folder.
const linkTo = (pattern: string) => pattern.replace(/^(.*?)(?:\*.ts)?$/, '[`$1`](../src/$1)');

/**
 * The files that a reader must trust for each claim, in the order of reading. Without those that can only
 * refuse too much, such as the router, which finds a route together with its access.
 */
const CLAIMS = {
  'Who gets in':
    'routes.ts pipeline.ts auth/access.ts auth/credential.ts auth/jwt.ts api/access.ts auth/limiter.ts http/address.ts http/message.ts http/exchange.ts http/body.ts clock.ts service.ts config.ts ops/admin.ts',
  'No acknowledged write is lost, no update overwrites another':
    'pipeline.ts http/reply.ts user.ts api/users.ts api/preconditions.ts http/conditional.ts api/failures.ts ops/metrics.ts store/*.ts',
  'Failed logins, and the memory that clients take in the process, are limited':
    'auth/limiter.ts auth/access.ts api/access.ts http/address.ts pipeline.ts service.ts server/*.ts http/exchange.ts http/message.ts http/conditional.ts http/form.ts http/body.ts http/reply.ts api/users.ts store/queue.ts auth/jwt.ts ops/log.ts ops/metrics.ts config.ts',
  'Nothing leaks':
    'http/*.ts user.ts auth/access.ts api/*.ts server/connection.ts pipeline.ts service.ts main.ts config.ts store/*.ts ops/*.ts docs.ts docs.html',
};

/** Runs the commands of all blocks in one shell and puts each output below its command. */
async function replay(blocks: readonly string[]): Promise<string[]> {
  const folder = mkdtempSync(join(tmpdir(), 'notes-users-session-'));
  const port = await freePort();
  const shell = spawn('bash', ['--norc'], {
    cwd: ROOT,
    env: { ...process.env, PORT: String(port), DATABASE_URL: `sqlite:${folder}/service.db` },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  shell.stdout.setEncoding('utf8');
  const results: string[] = [];
  try {
    for (const block of blocks) {
      let result = '';
      for (const [, command = ''] of block.matchAll(/^\$ (.*)/gm)) {
        const here = command
          .replaceAll('localhost:3000', `localhost:${port}`)
          .replaceAll('service.log', `${folder}/service.log`);
        shell.stdin.write(`${here}\necho; echo ${END}\n`);
        let output = '';
        while (!output.endsWith(`\n${END}\n`)) output += (await once(shell.stdout, 'data'))[0];
        const text = output.slice(0, -END.length - 2).trimEnd();
        result += `$ ${command}\n${text === '' ? '' : `${text}\n`}`;
      }
      const shown = result.replaceAll('\r', '').replaceAll(`${folder}/`, 'data/');
      results.push(shown.replaceAll(`localhost:${port}`, 'localhost:3000'));
    }
    return results;
  } finally {
    shell.stdin.end('kill $(jobs -p) 2>/dev/null; wait\n');
    await once(shell, 'close');
    rmSync(folder, { recursive: true, force: true });
  }
}

const END = '-- end of the output --';

if (import.meta.main) {
  writeFileSync(README, await renew(readFileSync(README, 'utf8')));
  writeFileSync(DESIGN, withFiles(readFileSync(DESIGN, 'utf8')));
}
