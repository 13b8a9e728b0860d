// Builds a stand-in for the Postgres image of compose.yaml, for machines that reach no registry. It
// has this machine's Postgres (Debian's package) on the base image of the Dockerfile, with the same
// variables, user and folders.
import { execFileSync } from 'node:child_process';
import { globSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { newFolder } from '../support/program.ts';
import { engine } from './engine.ts';

const [SERVER] = globSync('/usr/lib/postgresql/*/bin/postgres').sort().toReversed();
const PROGRAMS = SERVER?.replace('/bin/postgres', '');

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

// The mode 3777 is that of the published image. A tmpfs mounted on the folder takes it over.
const DOCKERFILE = `FROM node:26-bookworm-slim
ADD root.tar /
COPY entrypoint /entrypoint
RUN ldconfig && echo postgres:x:999:999::/var/lib/postgresql:/bin/sh >> /etc/passwd \\
 && mkdir -p -m 3777 /var/lib/postgresql /var/run/postgresql \\
 && chown 999:999 /var/lib/postgresql /var/run/postgresql
ENV PATH=${PROGRAMS}/bin:/usr/local/bin:/usr/bin:/bin PGDATA=/var/lib/postgresql/data
ENTRYPOINT ["/entrypoint"]
`;

/** Returns the name of the published image if it is available, otherwise of the stand-in; undefined without Postgres. */
export async function postgresImage(published: string): Promise<string | undefined> {
  return engine('image', 'inspect', published)
    .catch(() => engine('pull', '--quiet', published))
    .then(() => published, standIn);
}

async function standIn(): Promise<string | undefined> {
  if (PROGRAMS === undefined) return undefined;
  const context = newFolder();
  const shared = ['/usr/share/zoneinfo', PROGRAMS.replace('/usr/lib', '/usr/share')];
  // In the base image /lib is a link. A folder would replace it.
  const flags = ['-chPf', join(context, 'root.tar'), '--transform=s,^/lib/,/usr/lib/,'];
  execFileSync('tar', [...flags, PROGRAMS, ...shared, ...libraries()]);
  writeFileSync(join(context, 'entrypoint'), ENTRYPOINT, { mode: 0o755 });
  writeFileSync(join(context, 'Dockerfile'), DOCKERFILE);
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
