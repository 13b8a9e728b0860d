// HAProxy in front of two replicas, or of the members of a cluster.
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Daemon, freePort } from '../support/daemon.ts';
import { newFolder, type Program } from '../support/program.ts';
import { read, replaced } from './page.ts';
import { HAPROXY } from './programs.ts';

export function startHaproxy(port: number, config: string, folder = newFolder()): Promise<Daemon> {
  chmodSync(folder, 0o755);
  const file = join(folder, 'haproxy.cfg');
  writeFileSync(file, config);
  return new Daemon(port, HAPROXY, ['-db', '-f', file], { cwd: folder }).listening();
}

export async function startBalancer(replicas: readonly Pick<Program, 'url' | 'adminUrl'>[]) {
  const port = await freePort();
  const portOf = (url: string) => new URL(url).port;
  const config = replaced(read('haproxy-api.cfg'), {
    'bind :80': `bind 127.0.0.1:${port}`,
    ...Object.fromEntries(
      replicas.map((program, i) => [
        `10.0.1.${i + 1}:3000 check port 3001`,
        `127.0.0.1:${portOf(program.url)} check port ${portOf(program.adminUrl)}`,
      ]),
    ),
  });
  return startHaproxy(port, config);
}
