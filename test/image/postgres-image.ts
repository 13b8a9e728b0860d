// Builds a stand-in for the Postgres image of compose.yaml, for machines that reach no registry. It
// has this machine's Postgres (Debian's package) on the base image of the Dockerfile, with the same
// variables, user and folders.
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, globSync, mkdirSync, realpathSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { newFolder } from '../support/program.ts';
import { engine } from './engine.ts';

const BASE = 'node:26-bookworm-slim';
const [PROGRAMS] = globSync('/usr/lib/postgresql/*').sort().toReversed();

const ENTRYPOINT = `#!/bin/sh
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --encoding=UTF8 --locale=C \\
    --auth-local=trust --auth-host=scram-sha-256
  echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
  pg_ctl -w -o "-c listen_addresses=" start
  createdb --username="$POSTGRES_USER" --maintenance-db=postgres "$POSTGRES_DB"
  pg_ctl -w stop
fi
exec postgres -c listen_addresses='*'
`;

/** Reason why the stand-in can't be built; false if it can. */
export const NO_POSTGRES =
  (PROGRAMS === undefined || !existsSync(join(PROGRAMS, 'bin/postgres'))) &&
  'Postgres is not installed (Debian package postgresql)';

/** Returns the name of the published image if it is available, otherwise of the stand-in. */
export async function postgresImage(published: string): Promise<string> {
  const isThere = await engine('image', 'inspect', published).catch(() => undefined);
  if (isThere !== undefined) return published;
  return (await engine('pull', '--quiet', published).then(() => published, standIn)).trim();
}

async function standIn(): Promise<string> {
  const context = newFolder();
  const root = join(context, 'root');
  const copy = (path: string) => {
    // In the base image /lib is a link. A folder would replace it.
    const target = join(root, path.replace(/^\/lib\b/, '/usr/lib'));
    mkdirSync(dirname(target), { recursive: true });
    cpSync(realpathSync(path), target, { recursive: true, dereference: true });
  };
  const version = PROGRAMS!.split('/').at(-1)!;
  for (const path of [PROGRAMS!, `/usr/share/postgresql/${version}`, '/usr/share/zoneinfo']) {
    copy(path);
  }
  for (const library of libraries()) copy(library);
  writeFileSync(join(context, 'entrypoint'), ENTRYPOINT, { mode: 0o755 });
  writeFileSync(
    join(context, 'Dockerfile'),
    [
      `FROM ${BASE}`,
      'COPY root/ /',
      'COPY entrypoint /entrypoint',
      'RUN ldconfig && echo postgres:x:999:999::/var/lib/postgresql:/bin/sh >> /etc/passwd \\',
      ' && mkdir -p /var/lib/postgresql /var/run/postgresql \\',
      ' && chown 999:999 /var/lib/postgresql /var/run/postgresql \\',
      // The mode of the published image. A tmpfs mounted on the folder takes it over.
      ' && chmod 3777 /var/run/postgresql',
      `ENV PATH=${PROGRAMS}/bin:/usr/local/bin:/usr/bin:/bin PGDATA=/var/lib/postgresql/data`,
      'ENTRYPOINT ["/entrypoint"]',
      '',
    ].join('\n'),
  );
  return engine('build', '-q', context);
}

/** Returns the libraries of the programs that are not part of every Debian. */
function libraries(): readonly string[] {
  const programs = globSync(join(PROGRAMS!, 'bin/*'));
  const output = execFileSync('ldd', programs, { encoding: 'utf8' });
  const paths = [...output.matchAll(/=> (\/\S+)/g)].map(([, path]) => path!);
  const basic = /\/(libc|libm|ld-linux[\w-]*|libdl|libpthread|librt|libgcc_s|libstdc\+\+)\.so/;
  return [...new Set(paths)].filter((path) => !basic.test(path));
}
