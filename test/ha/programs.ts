// Finds the programs of a Patroni cluster. Postgres, etcd and HAProxy come from Debian, and Patroni from `.ci/tools`.
import { globSync } from 'node:fs';
import { dirname } from 'node:path';
import { find } from '../support/daemon.ts';
import { missing } from '../support/tools.ts';

export const PATRONI_BIN = dirname(find('patroni') ?? '');
export const ETCD = find('etcd') ?? '';
export const HAPROXY = find('haproxy') ?? '';
/** Folder of the newest Postgres that has pg_rewind. */
export const POSTGRES_BIN = dirname(
  globSync('/usr/lib/postgresql/*/bin/pg_rewind').sort().at(-1) ?? find('pg_rewind') ?? '',
);

export const ABSENT =
  missing('patroni', 'etcd', 'haproxy') || (POSTGRES_BIN === '.' && missing('pg_rewind'));
