// Runs the command blocks of docs/operations.md. Those that need a container engine are in
// test/image/operations.test.ts, those of proxies in test/proxies. Also checks the blocks of
// docs/high-availability.md that test:ha does not run.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { databaseUrl, settings } from './ha/page.ts';
import { send } from './support/client.ts';
import { block, blocks } from './support/manual.ts';
import { promtool, WITHOUT_PROMTOOL } from './support/metrics.ts';
import { query } from './support/postgres-server.ts';
import { fileOf, newDatabase, newFolder, ROOT, start } from './support/program.ts';
import { create, execute, list, pathOf, serve } from './support/service.ts';
import { missing } from './support/tools.ts';

const MANUAL = join(ROOT, 'docs/operations.md');
const MANIFEST = join(ROOT, 'deploy/kubernetes.yaml');

test('the scrape configurations are valid for Prometheus', { skip: WITHOUT_PROMTOOL }, () => {
  const configurations = blocks().filter(({ language }) => language === 'yaml');
  assert.ok(configurations.length > 0);
  for (const { text } of configurations) {
    // Debian's Prometheus lacks Kubernetes discovery.
    const known = text.replace(/kubernetes_sd_configs: .*/, 'static_configs: [{ targets: [] }]');
    promtool(['check', 'config', fileOf(known.replace('HOST', 'localhost'))]);
  }
});

describe('the page on high availability', () => {
  const page = 'high-availability.md';

  test('it installs the versions that test:ha runs', () => {
    const file = readFileSync(join(import.meta.dirname, 'ha/requirements.txt'), 'utf8');
    const command = block('Install', 'pip install', page);
    for (const line of file.trim().split('\n')) assert.ok(command.includes(`'${line}'`), line);
  });

  for (const { topology, store } of [
    { topology: 'three hosts', store: 'postgres 127.0.0.1:1,127.0.0.2:1,127.0.0.3:1/notes' },
    { topology: 'HAProxy', store: 'postgres 127.0.0.1:1/notes' },
  ] as const) {
    test(`the service takes the settings of a replica (${topology})`, async () => {
      const url = databaseUrl(topology).replaceAll('10.0.0.', '127.0.0.').replaceAll(':5432', ':1');
      await using program = await start(settings(url));
      assert.equal((await program.logged('listening')).store, store);
    });
  }

  test('the second Service is the first with another name, for pods that are not ready too', () => {
    const service = readFileSync(MANIFEST, 'utf8')
      .split(/^---\n/m)
      .find((object) => object.includes('\nkind: Service\n'))!;
    const text = readFileSync(join(ROOT, 'deploy/ha/kubernetes-without-store.yaml'), 'utf8');
    const expected = service
      .replace('name: notes-users\n', 'name: notes-users-without-store\n')
      .replace('spec:\n', 'spec:\n  publishNotReadyAddresses: true\n');
    assert.equal(text, expected);
  });
});

test('the manual: during a rotation of roles the service runs as the first, then either, then only the second', async () => {
  const server = process.env.TEST_DATABASE_URL;
  if (!server) throw new Error('TEST_DATABASE_URL is not set: run the tests with npm test');
  const name = `notes_${process.pid}`;
  // The administrator of a managed Postgres is no superuser.
  const administrator = `postgres://${name}_admin:secret@${new URL(server).host}/postgres`;
  const runs = async (text: string) => {
    const own = text.replaceAll(/\bnotes(?=\b|_2)/g, name).replaceAll('PASSWORD', 'secret');
    for (const statement of own.split(';\n').filter(Boolean)) await query(administrator, statement);
  };
  let users = 0;
  const status = async (role: string) => {
    const DATABASE_URL = `postgres://${role}:secret@${new URL(server).host}/${name}`;
    await using program = await start({ DATABASE_URL, DATABASE_TIMEOUT_MS: '2000' });
    const body = { name: 'Ann', email: `${users++}@x` };
    return (await send(`${program.url}/users`, { method: 'POST', body })).status;
  };
  try {
    await query(server, `create role ${name}_admin createrole createdb login password 'secret'`);
    await runs(block('Kubernetes', 'create database'));
    assert.equal(await status(name), 201);
    await runs(block('Database password', 'in role'));
    assert.equal(await status(`${name}_2`), 201);
    assert.equal(await status(name), 201);
    await runs(block('Database password', 'nologin'));
    assert.equal(await status(`${name}_2`), 201);
    assert.equal(await status(name), 500);
  } finally {
    await query(server, `drop database if exists ${name} with (force)`);
    await query(server, `drop role if exists ${name}_2, ${name}, ${name}_admin`);
  }
});

describe('the manual: Kubernetes', { skip: missing('kubectl') }, () => {
  // Without a cluster, the real kubectl still parses the arguments and the objects.
  const STAND_IN = `
    kubectl() {
      case $1 in
        create) command kubectl "$@" ;;
        apply) command kubectl label --local -o jsonpath='{.kind} {.data}{"\\n"}' "\${@:2}" is=applied >> calls ;;
        *) echo "$*" >> calls && [ "$2" != "$STUCK" ] ;;
      esac
    }
    sleep() { echo "sleep $*" >> calls; }`;

  /**
   * Pastes blocks into a shell, in a folder with the page's secrets. Returns the first signing secret, the calls to the
   * cluster, and the data of the Secrets. No rollout becomes ready if `isStuck`.
   */
  function runs(heading: string, words: readonly string[], isStuck = false) {
    const folder = newFolder();
    const create = block('Kubernetes', 'mkdir');
    const twice = `${create}cat secrets/signing_secret; ! {\n${create}}`; // Pasted twice, it keeps the first.
    const first = execFileSync('bash', ['-ec', twice], { cwd: folder, stdio: 'pipe' }).toString();
    mkdirSync(join(folder, 'deploy'));
    const text = words.map((word) => block(heading, word)).join('');
    copyFileSync(MANIFEST, join(folder, 'deploy/kubernetes.yaml'));
    const { status } = spawnSync('bash', ['-c', `${STAND_IN}\n${text}`], {
      cwd: folder,
      env: { ...process.env, STUCK: isStuck ? 'status' : '' },
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    const lines = readFileSync(join(folder, 'calls'), 'utf8').trimEnd().split('\n');
    const calls = lines.map((line) => line.replace(/ (\{.*)?$/, ''));
    const secrets = lines
      .filter((line) => line.startsWith('Secret '))
      .map((line) => Object.entries<string>(JSON.parse(line.slice('Secret '.length))))
      .map((data) => Object.fromEntries(data.map(([key, value]) => [key, atob(value)])));
    return { folder, first, calls, secrets, status };
  }

  const ROTATION = ['roll_out()', '# 1.'];
  const READY = 'rollout status deployment/notes-users --timeout=';

  test('the secret has every file that the manifest mounts, and all of it is applied', () => {
    const { calls, secrets, status } = runs('Kubernetes', ['kubectl create secret']);
    assert.equal(status, 0);
    const objects = ['Deployment', 'Service', 'PodDisruptionBudget', 'NetworkPolicy'];
    assert.deepEqual(calls, ['Secret', ...objects, `${READY}5m`]);
    const manifest = readFileSync(MANIFEST, 'utf8');
    const mounted = [...manifest.matchAll(/value: \/run\/secrets\/notes-users\/(\w+)/g)];
    assert.deepEqual(Object.keys(secrets[0]!).sort(), mounted.map(([, name]) => name).sort());
  });

  test('a signing key rotation takes three roll-outs, with an hour and a minute before the last', () => {
    const { first, calls, secrets, status } = runs('Signing key, replicas', ROTATION);
    assert.equal(status, 0);
    const rollOut = ['Secret', 'rollout restart deployment/notes-users', `${READY}10m`, 'sleep 20'];
    assert.deepEqual(calls, [...rollOut, ...rollOut, 'sleep 3660', ...rollOut]);
    const keys = secrets.map((one) => [one.signing_secret, one.verify_only_secret]);
    const fresh = keys[0]![1]!;
    assert.match(fresh, /^[0-9a-f]{64}\n$/);
    assert.deepEqual(keys, [
      [first, fresh],
      [fresh, first],
      [fresh, ''],
    ]);
  });

  test('a signing key rotation stops at the first rollout that fails', () => {
    const { folder, first, secrets, status } = runs('Signing key, replicas', ROTATION, true);
    assert.equal(status, 1);
    assert.equal(secrets.length, 1);
    const signing = readFileSync(join(folder, 'secrets/signing_secret'), 'utf8');
    assert.equal(signing, first);
  });

  test('the manifest has only fields that Kubernetes has', {
    skip: missing('kubernetes-validate'),
  }, () => {
    execFileSync('kubernetes-validate', ['--strict', '--quiet', MANIFEST], { stdio: 'pipe' });
  });
});

test('5.4 the manual: after an import the service gives no id again, and none that was imported', async () => {
  const [statement] = /select setval.* from users(?=`)/.exec(readFileSync(MANUAL, 'utf8'))!;
  const url = await newDatabase('postgres');
  await using program = await serve({ DATABASE_URL: url });
  await create(program);
  const { id: deleted } = await create(program);
  await execute(url, `delete from users where id = ${deleted}`);
  await execute(url, statement);
  const { id } = await create(program);
  assert.ok(id > deleted);
  const values = `values (${id + 10}, 'Eve', 'eve@x')`;
  await execute(url, `insert into users (id, name, email) overriding system value ${values}`);
  await execute(url, statement);
  assert.ok((await create(program)).id > id + 10);
});

test('5.4 the manual: a move from SQLite to Postgres keeps ids, versions and any text', {
  skip: missing('sqlite3', 'psql'),
}, async () => {
  const DATABASE_URL = await newDatabase('sqlite');
  const url = await newDatabase('postgres');
  await using before = await serve({ DATABASE_URL });
  await using after = await serve({ DATABASE_URL: url });
  const names = '\\.|a\n\\.\nb|\\N|NULL|""| |,|\r|\t\u0001\u007f|\ufeff|😀'.split('|');
  for (const [i, name] of names.entries()) {
    const body = { name, email: `"\\${i},'@😀` };
    await send(`${before.url}/users`, { method: 'POST', body });
  }
  await send(`${before.url}/users/1`, { method: 'PATCH', body: { name: 'changed' } });
  const last = await create(before);
  await send(`${before.url}/users/${last.id}`, { method: 'DELETE' });

  const standIn =
    'docker() { [ $1 = cp ] && cp -r "$DATA" old || { shift 7; psql "$URL" "$@"; }; }';
  const script = `${standIn}\n${block('From SQLite to Postgres', 'sqlite3')}`;
  const env = { ...process.env, URL: url, DATA: dirname(pathOf(DATABASE_URL)) };
  const move = () =>
    spawnSync('bash', ['-c', script], { cwd: newFolder(), env, stdio: 'pipe' }).status;
  assert.equal(move(), 0);
  assert.equal(await list(after), await list(before));
  const tag = async (url: string) => (await send(`${url}/users/1`)).headers.get('etag');
  assert.equal(await tag(after.url), await tag(before.url));
  assert.equal((await create(after)).id, last.id + 1);
});
