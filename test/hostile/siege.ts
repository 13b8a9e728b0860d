// One attack: an attacker in a process of its own, honest clients meanwhile, and what is asserted.
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { SECRET } from '../support/program.ts';
import type { Attack } from './attacks.ts';
import type { Counts, Target } from './connections.ts';
import { HonestClient, type HonestRequest } from './honest.ts';
import { IS_FULL, type Result, report } from './results.ts';
import { type Process, peakDuring, settled } from './service.ts';

/** How long an attack goes on. */
const ATTACK_MS = IS_FULL ? 12_000 : 8_000;
const MIN_SUCCESS_RATE = 0.98;
const MAX_P99_MS = 1_000;

/** Memory that the process may keep of what it has got, as a share of what it could get. */
const KEPT_SHARE = 0.5;

const GREETING: HonestRequest = { path: '/' };
const USER: HonestRequest = { path: '/users/1' };

/** What the tests know of a service that is attacked. */
export interface Besieged extends Process {
  /** How it ended; undefined while it lives. */
  readonly end: string | undefined;
  /** Resolves when it has ended. */
  readonly ended: Promise<unknown>;
}

/** Where an attack runs. */
export interface Setting {
  readonly transport: string;
  readonly store: string;
  readonly limitBytes: number;
  /** Descriptors that it may open for good on first use: the pool's. */
  readonly spareDescriptors: number;
}

/** Attacks a service, and asserts that it lives, serves, and gives back what it took. */
export async function besiege(
  t: TestContext,
  service: Besieged,
  attack: Attack,
  { transport, store, limitBytes, spareDescriptors }: Setting,
): Promise<void> {
  const requests = attack.honest ?? [
    GREETING,
    ...(attack.hasUsers && !attack.freezesStore ? [USER] : []),
  ];
  await serves(service, requests);
  const rest = await settled(service, ({ descriptors }) => {
    return descriptors <= service.atRest.descriptors + spareDescriptors;
  });
  const honest = new HonestClient(service, requests);
  let counts: Counts | undefined;
  const peakBytes = await peakDuring(service.group, async () => {
    counts = await attackFor(ATTACK_MS, attack, service, () => honest.stop());
  });
  const result = { attack: attack.name, transport, store, limitBytes, peakBytes };
  const { successRate, p99Ms, failures, total } = honest;
  const figures = { successRate, p99Ms, requests: total, restBytes: rest.usedBytes };
  t.diagnostic(`attacker: ${JSON.stringify(counts)}; honest failures: ${JSON.stringify(failures)}`);
  const lost: Result = { ...result, ...figures, isAlive: false, afterBytes: 0 };
  if (service.end !== undefined) {
    report(lost);
    assert.fail(`the service ended: ${service.end}`);
  }
  const bound = rest.usedBytes + KEPT_SHARE * (limitBytes - rest.usedBytes);
  const after = await settled(service, ({ usedBytes, descriptors }) => {
    return usedBytes <= bound && descriptors <= rest.descriptors + spareDescriptors;
  });
  report({ ...lost, isAlive: true, afterBytes: after.usedBytes });
  assert.equal(service.group.kills, 0);
  assert.ok(counts !== undefined && counts.opened > 0, 'the attacker had no connection');
  if (attack.keeps !== undefined) assert.equal(counts.opened - counts.closed, attack.keeps);
  assert.ok(
    successRate >= MIN_SUCCESS_RATE,
    `${successRate} of ${total}: ${JSON.stringify(failures)}`,
  );
  if (IS_FULL) assert.ok(p99Ms < MAX_P99_MS, `p99 ${p99Ms} ms`);
  assert.ok(after.usedBytes <= bound, `${after.usedBytes} bytes are used, ${bound} are allowed`);
  assert.ok(
    after.descriptors <= rest.descriptors + spareDescriptors,
    `${after.descriptors} descriptors, ${rest.descriptors} before`,
  );
  await serves(service, requests);
}

/** Each request gets 200. */
async function serves(service: Process, requests: readonly HonestRequest[]): Promise<void> {
  const client = new HonestClient(service, requests);
  await client.ended(2 * requests.length);
  await client.stop();
  assert.deepEqual(client.failures, {});
}

/** Attacks for a time, and until `last` has resolved; then every connection of the attacker ends. */
async function attackFor(
  ms: number,
  { name }: Attack,
  service: Besieged,
  last: () => Promise<void>,
): Promise<Counts | undefined> {
  const { port, adminPort, isTls } = service;
  const run = `a${process.pid}`;
  const target: Target = { attack: name, port, adminPort, isTls, run, secret: SECRET };
  const child = fork(join(import.meta.dirname, 'attacker.ts'), [JSON.stringify(target)]);
  let counts: Counts | undefined;
  child.on('message', (message: Counts) => {
    counts = message;
  });
  const ended = once(child, 'exit');
  const early = ended.then(() => 'attacker');
  const how = await Promise.race([early, service.ended, pause(ms)]);
  await last();
  child.kill('SIGKILL');
  await ended;
  assert.notEqual(how, 'attacker', 'the attacker ended by itself');
  return counts;
}
