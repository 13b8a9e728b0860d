// PgBouncer in transaction mode in front of a server.
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Daemon, stablePort } from '../support/daemon.ts';
import { newFolder } from '../support/program.ts';
import type { Server } from '../support/server.ts';

/** Starts PgBouncer in front of every database of the server. */
export async function startBouncer(
  path: string,
  server: Server,
  settings: Record<string, string>,
  listenPort?: number,
): Promise<Daemon> {
  const port = listenPort ?? (await stablePort());
  const folder = newFolder();
  chmodSync(folder, 0o755);
  const file = join(folder, 'pgbouncer.ini');
  const all = {
    listen_addr: '127.0.0.1',
    listen_port: String(port),
    unix_socket_dir: '',
    auth_type: 'any',
    pool_mode: 'transaction',
    default_pool_size: '10',
    // Every suite has its own database. Ten kept connections to each would use up all of them.
    server_idle_timeout: '2',
    max_client_conn: '500',
    ...settings,
  };
  const lines = Object.entries(all).map(([name, value]) => `${name} = ${value}`);
  const target = `* = host=127.0.0.1 port=${server.port} user=postgres password=test`;
  writeFileSync(file, ['[databases]', target, '[pgbouncer]', ...lines, ''].join('\n'));
  return new Daemon(port, path, [file]).listening();
}
