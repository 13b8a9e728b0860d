// Postgres is 10 ms away and 1,000 writers use it, while an attacker sends a taken email every
// 100 ms. No honest request fails. Prints the throughput under attack next to the normal one.
import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { test } from 'node:test';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { request } from './http.ts';
import { Ledger } from './ledger.ts';
import { TcpProxy } from './proxy.ts';
import { report, secondsSince } from './results.ts';
import { through, usersIn } from './users.ts';
import { Writers } from './writers.ts';

const WRITERS = 1000;
const ROUND_TRIP_MS = 10;
const ATTACK_EVERY_MS = 100;
/** Number of rounds, each with normal load and then an attack, and writes of each phase. */
const ROUNDS = 5;
const SAMPLE = 2000;

test('changes to a taken email under load', { timeout: 300_000 }, async (t) => {
  await using server = await Server.create();
  await using proxy = await TcpProxy.listen(server.port);
  const databaseUrl = await createDatabase(server.url);
  await using program = await start({ DATABASE_URL: through(proxy.port, databaseUrl) });
  const attacker = new Agent({ keepAlive: true });
  const ask = (method: string, path: string, body: object) =>
    request(attacker, program.url + path, method, body);
  await ask('POST', '/users', { name: 'owner', email: 'taken@example.com' });
  const created = await ask('POST', '/users', { name: 'attacker', email: 'a@example.com' });
  const { id } = JSON.parse(created.body);
  proxy.delayMs = ROUND_TRIP_MS / 2;

  const ledger = new Ledger();
  const writers = new Writers(ledger, program.url, WRITERS);
  await writers.progress(WRITERS);
  const seconds = { normal: 0, attacked: 0 };
  const attacks: Promise<{ status: number }>[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    seconds.normal += await secondsOf(SAMPLE);
    const attack = () => attacks.push(ask('PATCH', `/users/${id}`, { email: 'taken@example.com' }));
    attack();
    const timer = setInterval(attack, ATTACK_EVERY_MS);
    seconds.attacked += await secondsOf(SAMPLE);
    clearInterval(timer);
  }
  const statuses = (await Promise.all(attacks)).map(({ status }) => status);
  attacker.destroy();
  await writers.stop();

  const ratio = (seconds.normal / seconds.attacked).toFixed(2);
  t.diagnostic(`${attacks.length} attacks; throughput ${ratio} of normal`);
  assert.deepEqual([...new Set(statuses)], [400]);
  assert.equal(writers.count(500), 0);
  assert.deepEqual([writers.surprises, writers.broken], [[], 0]);
  const users = await usersIn(databaseUrl);
  const theirs = users.filter(({ email }) => ledger.entries.has(email));
  assert.equal(users.length - theirs.length, 2);
  assert.deepEqual(ledger.check(theirs), { lost: [], duplicated: [] });
  report(t, {
    ...{ fault: 'changes to a taken email', store: 'postgres', injected: attacks.length },
    ...{ acknowledged: ledger.acknowledged, lost: 0, duplicated: 0 },
  });

  async function secondsOf(count: number): Promise<number> {
    const began = performance.now();
    await writers.progress(count);
    return secondsSince(began);
  }
});
