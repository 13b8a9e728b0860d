// Finds the programs of a Patroni cluster. Postgres, etcd and HAProxy come from Debian. Patroni
// comes from PyPI at a pinned version, because Debian 12 has 3.0.2, which can lose writes.
import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, globSync, readFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { find, OWNER } from '../support/daemon.ts';
import { fill } from '../support/tools.ts';

/** HA=full repeats each fault and uses Patroni's default times. */
export const IS_FULL = process.env.HA === 'full';

const INSTALL_TIMEOUT_MS = 300_000;

const REQUIREMENTS = join(import.meta.dirname, 'requirements.txt');
const CACHE = join(tmpdir(), `notes-users-ha-${userInfo().uid}`);
const VERSION = createHash('sha256').update(readFileSync(REQUIREMENTS)).digest('hex').slice(0, 12);
const VENV = join(CACHE, VERSION);

/** Folder of `patroni` and `patronictl`. */
export const PATRONI_BIN = join(VENV, 'bin');
export const ETCD = find('etcd') ?? '';
export const HAPROXY = find('haproxy') ?? '';
/** Folder of the newest Postgres that has pg_rewind. */
export const POSTGRES_BIN = dirname(
  globSync('/usr/lib/postgresql/*/bin/pg_rewind').sort(byVersion).at(-1) ?? find('pg_rewind') ?? '',
);

/** Reason to skip the tests; `false` if every program is installed. Installs Patroni unless it is cached. */
export const ABSENT = whatIsAbsent() || (await fill(VENV, 'Patroni', install));

function whatIsAbsent(): string | false {
  const packages = {
    'etcd-server': ETCD !== '',
    haproxy: HAPROXY !== '',
    postgresql: POSTGRES_BIN !== '.',
    'python3-venv': python() !== undefined,
  };
  const missing = Object.entries(packages).filter(([, isThere]) => !isThere);
  const names = missing.map(([name]) => name).join(' ');
  return names !== '' && `not installed: apt-get install ${names}`;
}

/** Installs Patroni, so that the user of Postgres can read it. */
async function install(): Promise<void> {
  const options = { timeout: INSTALL_TIMEOUT_MS, cwd: tmpdir() };
  const pip = ['-m', 'pip', 'install', '-q', '-r', REQUIREMENTS];
  await promisify(execFile)(python()!, ['-m', 'venv', VENV], options);
  await promisify(execFile)(join(PATRONI_BIN, 'python'), pip, options);
  chmodSync(CACHE, 0o755);
  execFileSync('chmod', ['-R', 'a+rX', VENV]);
}

/** Returns a Python with ensurepip and venv that the user of Postgres can run. */
function python(): string | undefined {
  return ['/usr/bin/python3', find('python3')].find((path) => {
    if (path === undefined) return false;
    try {
      execFileSync(path, ['-c', 'import ensurepip, venv'], { ...OWNER, stdio: 'ignore' });
      return true;
    } catch {
      return false;
    }
  });
}

function byVersion(a: string, b: string): number {
  return a.localeCompare(b, undefined, { numeric: true });
}
