// Installs Lighthouse once into the temporary folder, with the versions of test/lighthouse.
import { execFile } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { newFolder } from './program.ts';

const run = promisify(execFile);
const LOCK = join(import.meta.dirname, '../lighthouse');
const { lighthouse: VERSION } = JSON.parse(
  readFileSync(join(LOCK, 'package.json'), 'utf8'),
).dependencies;
const FOLDER = join(tmpdir(), `notes-users-lighthouse-${userInfo().uid}-${VERSION}`);
const INSTALL_TIMEOUT_MS = 300_000;
const RUN_TIMEOUT_MS = 120_000;

/** Returns the path of the command. @throws an error if it can't be installed */
export async function install(): Promise<string> {
  // npm writes this file last, so it marks a complete installation.
  if (!existsSync(join(FOLDER, 'node_modules/.package-lock.json'))) {
    mkdirSync(FOLDER, { recursive: true, mode: 0o700 });
    for (const name of ['package.json', 'package-lock.json']) {
      copyFileSync(join(LOCK, name), join(FOLDER, name));
    }
    const args = ['ci', '--ignore-scripts', '--no-audit', '--no-fund'];
    await run('npm', args, { cwd: FOLDER, timeout: INSTALL_TIMEOUT_MS });
  }
  return join(FOLDER, 'node_modules/lighthouse/cli/index.js');
}

/** Lighthouse's result for a page on an emulated mid-range phone. */
export interface Report {
  /** Scores from 0 to 100 by category. */
  readonly scores: Readonly<Record<string, number>>;
  /** Descriptions of the audits without a full score. */
  readonly findings: readonly string[];
}

/** Runs Lighthouse once. */
export async function measure(command: string, url: string, chromium: string): Promise<Report> {
  const file = join(newFolder(), 'report.json');
  const sandbox = userInfo().uid === 0 ? ' --no-sandbox' : '';
  await run(
    process.execPath,
    [
      command,
      url,
      '--quiet',
      '--output=json',
      `--output-path=${file}`,
      `--chrome-flags=--headless=new${sandbox}`,
      '--only-categories=performance,accessibility,best-practices,seo',
      '--no-enable-error-reporting',
    ],
    { env: { ...process.env, CHROME_PATH: chromium }, timeout: RUN_TIMEOUT_MS },
  );
  const { categories, audits } = JSON.parse(readFileSync(file, 'utf8')) as {
    categories: Record<string, { score: number }>;
    audits: Record<string, { id: string; score: number | null; displayValue?: string }>;
  };
  const scores = Object.entries(categories).map(([name, { score }]) => [
    name,
    Math.round(score * 100),
  ]);
  const findings = Object.values(audits)
    .filter(({ score }) => score !== null && score < 1)
    .map(({ id, displayValue = '' }) => `${id} ${displayValue}`.trim());
  return { scores: Object.fromEntries(scores), findings };
}
