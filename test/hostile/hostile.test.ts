// Attacks on the service as it ships, in a memory control group, next to honest clients. The service must not end, and
// each response must be the one of its request. What share of honest clients gets one is reported.
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { open } from '../support/bytes.ts';
import { certificate } from '../support/certificate.ts';
import { Page } from '../support/metrics.ts';
import { createDatabase } from '../support/postgres.ts';
import { Server } from '../support/postgres-server.ts';
import { newDatabase, SECRET } from '../support/program.ts';
import { insertUsers } from '../support/service.ts';
import { TcpProxy, through } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';
import type { Target } from './attacker.ts';
import { ATTACKS, type Attack } from './attacks.ts';
import { Crowd } from './honest.ts';
import { IS_FULL, publishResults, type Result } from './results.ts';
import { Service, type Settings } from './service.ts';

const MIB = 2 ** 20;
const PEACE_MS = 500; // before the attack
const ATTACK_MS = IS_FULL ? 12_000 : 3_000;
const LEAVE_MS = 20_000; // in which sockets leave CLOSE-WAIT; a body may take 30 s
const SLOW_MS = 1_000; // one way to Postgres
const LONGEST_NAME = `'${'\x01'.repeat(100)}'`; // in JSON, as SQL
const LIMITS_MIB = IS_FULL ? [128, 256] : [128];

const CASES = ATTACKS.flatMap((attack) => {
  const transports = attack.transport ? [attack.transport] : (['plain', 'tls'] as const);
  return transports.flatMap((transport) =>
    storesOf(attack, transport).flatMap((store) =>
      LIMITS_MIB.map((limitMiB) => ({ attack, transport, store, limitMiB })),
    ),
  );
});

function storesOf({ store, users }: Attack, transport: string): ('sqlite' | 'postgres')[] {
  if (store !== undefined) return [store];
  if (users === undefined) return ['sqlite'];
  return IS_FULL ? ['sqlite', 'postgres'] : [transport === 'tls' ? 'postgres' : 'sqlite'];
}

const results: Result[] = [];
const postgres = await Server.create('-c', 'fsync=off');
after(async () => {
  await postgres[Symbol.asyncDispose](); // first: publishing fails in a tree with changes
  publishResults(results);
});

for (const { attack, transport, store, limitMiB } of CASES) {
  test(`${attack.name} (${transport}, ${store}, ${limitMiB} MiB)`, async (t) => {
    const tls = transport === 'tls' ? certificate() : {};
    const url = store === 'sqlite' ? await newDatabase(store) : await createDatabase(postgres.url);
    await using proxy = await TcpProxy.listen(postgres.port);
    const settings = {
      DATABASE_URL: attack.delay === undefined ? url : through(url, proxy.port),
      ...{ ...tls, ...attack.settings },
    };
    await using service = await Service.start('image', limitMiB * MIB, settings);
    if (attack.users !== undefined) await insertUsers(url, attack.users, LONGEST_NAME);
    if (attack.leavesLogUnread) service.ignoreLog();
    const slots = await slotsOf(service);
    if (attack.delay === 'slow') proxy.delayMs = SLOW_MS;
    if (attack.delay === 'frozen') proxy.stall();
    const { crowd, opened } = await besiege(service, attack, slots);
    const isCompared = attack.does === 'computes' && store === 'sqlite' && !attack.users;
    const bareShare =
      isCompared && (IS_FULL || transport === 'plain' || attack.transport === 'tls')
        ? await shareOfBare(attack, slots, limitMiB, tls)
        : undefined;
    const { end, peakBytes } = service;
    results.push({ attack: attack.name, limitMiB, crowd, end, peakBytes, bareShare });
    t.diagnostic(JSON.stringify({ slots, opened, ...crowd.failures, bareShare }));
    assert.equal(end, undefined);
    assert.deepEqual(crowd.broken, []);
    if (opened === 0) throw new Error('the attacker had no connection');
    await until(() => service.closeWaiting === 0, LEAVE_MS).catch(() => {});
    const message = `${service.closeWaiting} sockets that the client has closed are open`;
    // A slow machine is still busy with what the attacker had sent.
    if (attack.does === 'computes' && service.closeWaiting > 0) throw new Error(message);
    assert.equal(service.closeWaiting, 0, message);
    proxy.resume();
    proxy.delayMs = 0;
    await until(() => service.isReady());
  });
}

/** Attacks for a time. Then every connection of the attacker ends. */
async function besiege(service: Service, attack: Attack, slots: number) {
  // A frozen store fails each read, with or without an attack.
  const crowd = new Crowd(service, attack.users !== undefined && attack.delay !== 'frozen');
  await pause(PEACE_MS);
  const { port, adminPort, isTls } = service;
  const target: Target = { attack: attack.name, port, adminPort, isTls, slots, secret: SECRET };
  const child = fork(join(import.meta.dirname, 'run-attack.ts'), [JSON.stringify(target)]);
  let opened = 0;
  child.on('message', (count: number) => {
    opened = count;
  });
  const exit = once(child, 'exit');
  await Promise.race([exit, once(child, 'message')]);
  crowd.begin();
  await Promise.race([exit, pause(ATTACK_MS)]);
  if (child.exitCode !== null) throw new Error('the attacker ended by itself');
  await crowd.stop();
  child.kill('SIGKILL');
  await exit;
  return { crowd, opened };
}

async function shareOfBare(attack: Attack, slots: number, limitMiB: number, tls: Settings) {
  await using bare = await Service.start('bare', limitMiB * MIB, tls);
  const { crowd } = await besiege(bare, attack, slots);
  return bare.end === undefined ? crowd.share(false) : 0;
}

/** Idle connections that fit, as the service reports it: the maximum, or the budget by the charge of one. */
async function slotsOf(service: Service): Promise<number> {
  await using client = await open(`http://127.0.0.1:${service.port}`, {}, service.isTls);
  await client.ask();
  const { values } = await Page.of(`http://127.0.0.1:${service.adminPort}`);
  const of = (name: string) => values.get(`http_server_${name}`)!;
  const affordable = Math.floor(of('charges_limit_bytes') / of('charges_bytes'));
  return Math.min(of('connections_limit'), affordable);
}
