// One attack: an attacker in a separate process, honest clients, and assertions.
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { SECRET } from '../support/program.ts';
import type { Attack } from './attacks.ts';
import type { Counts, Target } from './connections.ts';
import { HonestClient, type HonestRequest, IdleClient } from './honest.ts';
import { IS_FULL, report } from './results.ts';
import { type Process, peakDuring, settled, type Usage } from './service.ts';

/** Duration of an attack after all its connections are open. */
const ATTACK_MS = IS_FULL ? 12_000 : 5_000;
/** Time for opening them. */
const RAMP_MS = 20_000;
const MIN_SUCCESS_RATE = 0.98;
const MAX_P99_MS = 1_000;

/** Time for garbage collection. */
const GARBAGE_MS = 20_000;

/**
 * Share of the memory it could get that the process may keep: the C library keeps the memory of
 * closed connections for the next ones.
 */
const KEPT_SHARE = 0.75;

const GREETING: HonestRequest = { path: '/' };
const USER: HonestRequest = { path: '/users/1' };

/** A service under attack. */
export interface Besieged extends Process {
  /** Its exit; undefined while it runs. */
  readonly end: string | undefined;
  /** Resolves when it has ended. */
  readonly ended: Promise<unknown>;
}

/** The configuration of an attack. */
export interface Setting {
  readonly form: string;
  readonly transport: string;
  readonly store: string;
  readonly limitBytes: number;
  /** Descriptors that it may keep after first use: the pool's. */
  readonly spareDescriptors: number;
}

/** Attacks a service, and asserts that it survives, serves, and releases its resources. */
export async function besiege(
  t: TestContext,
  service: Besieged,
  attack: Attack,
  { form, transport, store, limitBytes, spareDescriptors }: Setting,
): Promise<void> {
  const requests = attack.honest ?? [
    GREETING,
    ...(attack.hasUsers && !attack.freezesStore ? [USER] : []),
  ];
  await serves(service, requests);
  const rest = await settled(service, ({ descriptors }) => {
    return descriptors <= service.atRest.descriptors + spareDescriptors;
  });
  const idle = await IdleClient.connect(service);
  const honest = new HonestClient(service, requests);
  let counts: Counts | undefined;
  const peakBytes = await peakDuring(service.group, async () => {
    counts = await attackFor(attack, service, () => honest.stop());
  });
  const isIdleClosed = !idle.isConnected;
  idle.close();
  const { afterBytes, faults: kept } = await aftermath(service, rest, limitBytes, spareDescriptors);
  const { successRate, p99Ms, failures, total } = honest;
  const isAlive = service.end === undefined;
  report({
    ...{ attack: attack.name, form, transport, store, limitBytes, isAlive },
    ...{ opened: counts?.opened, goal: counts?.goal },
    ...{ restBytes: rest.usedBytes, peakBytes, afterBytes, requests: total, successRate, p99Ms },
  });
  t.diagnostic(`attacker: ${JSON.stringify(counts)}; honest failures: ${JSON.stringify(failures)}`);
  assert.equal(service.end, undefined);
  assert.ok(counts !== undefined && counts.opened > 0, 'the attacker had no connection');
  const { opened, closed } = counts;
  const faults = {
    'kills in its group': service.group.kills > 0,
    ...faultsOf(honest),
    'the idle connection of an honest client was closed': isIdleClosed,
    [`${opened - closed} of ${attack.keeps} connections are left`]:
      attack.keeps !== undefined && opened - closed < attack.keeps,
    ...kept,
  };
  assertNone(faults);
  await serves(service, requests);
}

/** Sentences about the service; those that are true are faults. */
export type Faults = Readonly<Record<string, boolean>>;

export function assertNone(faults: Faults): void {
  assert.deepEqual(
    Object.keys(faults).filter((fault) => faults[fault]),
    [],
  );
}

/** Waits until the service has released what it used beyond `rest`; returns what it has kept. */
export async function aftermath(
  service: Process,
  rest: Usage,
  limitBytes: number,
  spareDescriptors: number,
): Promise<{ afterBytes: number; faults: Faults }> {
  const mostBytes = rest.usedBytes + KEPT_SHARE * (limitBytes - rest.usedBytes);
  const mostDescriptors = rest.descriptors + spareDescriptors;
  // Requests continue: an idle process collects no garbage.
  const others = new HonestClient(service, [GREETING]);
  const isSmall = ({ usedBytes }: Usage) => usedBytes <= mostBytes;
  const { usedBytes: afterBytes } = await settled(service, isSmall, GARBAGE_MS);
  await others.stop();
  const { descriptors } = await settled(service, (now) => now.descriptors <= mostDescriptors);
  const faults = {
    [`${afterBytes} bytes are used, ${mostBytes} are allowed`]: afterBytes > mostBytes,
    [`${descriptors} descriptors, ${rest.descriptors} before`]: descriptors > mostDescriptors,
  };
  return { afterBytes, faults };
}

/** Failures of honest clients. */
export function faultsOf({ successRate, p99Ms, total }: HonestClient): Faults {
  return {
    [`${(100 * successRate).toFixed(1)} % of ${total} honest requests got 200`]:
      successRate < MIN_SUCCESS_RATE,
    [`p99 of ${p99Ms} ms`]: IS_FULL && p99Ms >= MAX_P99_MS,
  };
}

/** Each request gets 200. */
async function serves(service: Process, requests: readonly HonestRequest[]): Promise<void> {
  const client = new HonestClient(service, requests);
  await client.ended(2 * requests.length);
  await client.stop();
  assert.deepEqual(client.failures, {});
}

/** Attacks for a time and until `last` resolves. Then every connection of the attacker ends. */
async function attackFor(
  { name, lastsMs = ATTACK_MS }: Attack,
  service: Besieged,
  last: () => Promise<void>,
): Promise<Counts | undefined> {
  const { port, adminPort, isTls } = service;
  const run = `a${process.pid}`;
  const target: Target = { attack: name, port, adminPort, isTls, run, secret: SECRET };
  const child = fork(join(import.meta.dirname, 'attacker.ts'), [JSON.stringify(target)]);
  let counts: Counts | undefined;
  const isReady = new Promise<void>((resolve) => {
    child.on('message', (message: Counts) => {
      counts = message;
      if (counts.opened + counts.failed >= counts.goal) resolve();
    });
  });
  const exit = once(child, 'exit');
  const ended = Promise.race([exit, service.ended]);
  await Promise.race([ended, isReady, pause(RAMP_MS, undefined, { ref: false })]);
  await Promise.race([ended, pause(lastsMs, undefined, { ref: false })]);
  const isEarly = child.exitCode !== null;
  await last();
  child.kill('SIGKILL');
  await exit;
  assert.ok(!isEarly, 'the attacker ended by itself');
  return counts;
}
