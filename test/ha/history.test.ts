// Calls of many clients through HAProxy on two replicas, while a Patroni cluster, the network and the replicas fail.
// Porcupine checks that the recorded history is linearizable. HA_CALLS sets the number of calls, and HA_HISTORY the file
// to keep. Prints how long each fault stopped the writes of each replica, in seconds.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { sendUnchecked } from '../support/client.ts';
import { freePort, signalAll } from '../support/daemon.ts';
import { block } from '../support/manual.ts';
import { newFolder, type Program, start } from '../support/program.ts';
import { TcpProxy, through } from '../support/tcp-proxy.ts';
import { missing, requireTools } from '../support/tools.ts';
import { startBalancer } from './balancer.ts';
import { Cluster, type Member } from './cluster.ts';
import { History } from './history.ts';
import { PAGE } from './page.ts';
import { ABSENT } from './programs.ts';

const CALLS = Number(process.env.HA_CALLS ?? 30_000);
const CALLS_BETWEEN_FAULTS = Math.max(2_000, CALLS / 100);
const STALL_MS = 2_000;
const RETRY_MS = 20;
const SKIP = ABSENT || missing('go');

requireTools(SKIP);

test('4.13 5.1 5.5 every history of calls is linearizable', { skip: SKIP }, async (t) => {
  const checker = join(newFolder(), 'porcupine');
  const cwd = join(import.meta.dirname, 'porcupine');
  try {
    await promisify(execFile)('go', ['build', '-o', checker, '.'], { cwd });
  } catch (err) {
    return t.skip(`Porcupine can't be built: ${err}`);
  }
  await using stack = new AsyncDisposableStack();
  const cluster = stack.use(await Cluster.start());
  const proxy = stack.use(await TcpProxy.listen(cluster.balancerPort));
  const [direct, proxied] = [cluster.settings('three hosts'), cluster.settings('HAProxy')];
  proxied.DATABASE_URL = through(proxied.DATABASE_URL!, proxy.port);
  const replicas: Program[] = [];
  const environments = [direct, proxied];
  for (const env of environments) {
    Object.assign(env, { PORT: `${await freePort()}`, ADMIN_PORT: `${await freePort()}` });
    replicas.push(stack.use(await start(env)));
  }
  const balancer = stack.use(await startBalancer(replicas));

  const faults: Readonly<Record<string, (leader: Member) => Promise<void>>> = {
    async switchover(leader) {
      await leader.run(block('Switchover', 'patronictl', PAGE));
      await cluster.newLeader(leader);
    },
    async 'kill -9 of Postgres'(leader) {
      assert.ok(signalAll(join(leader.folder, 'data'), 'SIGKILL') > 1);
      await cluster.newLeader(leader);
    },
    // Before its lock expires, as a supervisor does.
    async 'kill -9 of Patroni, started again'(leader) {
      await leader.killPatroni();
      leader.startPatroni();
    },
    async 'primary frozen, then thawed'(leader) {
      assert.ok(signalAll(leader.folder, 'SIGSTOP') > 2);
      await cluster.newLeader(leader).finally(() => signalAll(leader.folder, 'SIGCONT'));
    },
    async 'synchronous standby frozen'(leader) {
      const { folder } = await cluster.synchronousStandby(leader);
      assert.ok(signalAll(folder, 'SIGSTOP') > 2);
      await history.progress(CALLS_BETWEEN_FAULTS).finally(() => signalAll(folder, 'SIGCONT'));
    },
    async 'a cut network'() {
      assert.ok(proxy.cut('rst') > 0);
    },
    async 'a network that loses everything'() {
      proxy.stall();
      await pause(STALL_MS);
      proxy.cut('rst');
      proxy.resume();
    },
    async 'kill -9 of a replica'() {
      const i = Math.floor(Math.random() * replicas.length);
      await replicas[i]![Symbol.asyncDispose]();
      replicas[i] = stack.use(await start(environments[i]));
    },
  };
  const file = process.env.HA_HISTORY ?? join(newFolder(), 'history');
  const history = new History(balancer.url, file);
  let injected = 0;
  let leader = await cluster.whole();
  const all = Object.entries(faults);
  while (history.calls < CALLS || injected < all.length) {
    await history.progress(CALLS_BETWEEN_FAULTS);
    const [name, inject] = all[injected++ % all.length]!;
    const fault = inject(leader).then(() => cluster.whole());
    const stops = environments.map(({ PORT }) => longestStop(`http://127.0.0.1:${PORT}`, fault));
    const [next, stopped] = await Promise.all([fault, Promise.all(stops)]);
    t.diagnostic(`| ${[name, ...stopped].join(' | ')} |`);
    leader = next;
  }
  await history.progress(CALLS_BETWEEN_FAULTS);
  await history.stop();
  const { stdout } = await promisify(execFile)(checker, [file]).catch(({ message, stdout }) =>
    assert.fail(`${message}\n${stdout}`),
  );
  t.diagnostic(`${injected} faults, ${history.unknown} calls of unknown outcome; ${stdout.trim()}`);
});

/** Creates users until the first success after the fault. Returns the longest time in seconds without one. */
async function longestStop(url: string, fault: Promise<unknown>): Promise<string> {
  let state = 'injected';
  fault.then(
    () => (state = 'over'),
    () => (state = 'failed'),
  );
  let longestMs = 0;
  let lastMs = performance.now();
  while (state !== 'failed') {
    const isLast = state === 'over';
    const body = { name: 'Ada', email: `${randomUUID()}@stops` };
    const sent = sendUnchecked(`${url}/users`, { method: 'POST', body });
    if ((await sent.catch(() => undefined))?.status !== 201) {
      await pause(RETRY_MS);
      continue;
    }
    longestMs = Math.max(longestMs, performance.now() - lastMs);
    lastMs = performance.now();
    if (isLast) break;
  }
  return (longestMs / 1000).toFixed(1);
}
