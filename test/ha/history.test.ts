// Calls of many clients through HAProxy on two replicas, while a Patroni cluster, the network and the replicas fail.
// Porcupine checks that the recorded history is linearizable. HA_CALLS sets the number of calls, and HA_HISTORY the file
// to keep.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { TcpProxy, through } from '../faults/proxy.ts';
import { freePort, signalAll } from '../support/daemon.ts';
import { block } from '../support/manual.ts';
import { newFolder, type Program, start } from '../support/program.ts';
import { missing, requireTools } from '../support/tools.ts';
import { startBalancer } from './balancer.ts';
import { Cluster } from './cluster.ts';
import { History } from './history.ts';
import { PAGE } from './page.ts';
import { ABSENT } from './programs.ts';

const CALLS = Number(process.env.HA_CALLS ?? 30_000);
const CALLS_BETWEEN_FAULTS = Math.max(2_000, CALLS / 100);
const STALL_MS = 2_000;
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
  await cluster.createDatabase(await cluster.whole());
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

  const faults: Readonly<Record<string, () => Promise<void>>> = {
    async switchover() {
      const leader = await cluster.whole();
      await leader.run(block('Switchover', 'patronictl', PAGE));
      await cluster.newLeader(leader);
    },
    async 'kill -9 of Postgres'() {
      const leader = await cluster.whole();
      assert.ok(signalAll(join(leader.folder, 'data'), 'SIGKILL') > 1);
      await cluster.newLeader(leader);
    },
    // Before its lock expires, as a supervisor does.
    async 'kill -9 of Patroni, started again'() {
      const leader = await cluster.whole();
      await leader.killPatroni();
      leader.startPatroni();
    },
    async 'primary frozen, then thawed'() {
      const leader = await cluster.whole();
      assert.ok(signalAll(leader.folder, 'SIGSTOP') > 2);
      await cluster.newLeader(leader).finally(() => signalAll(leader.folder, 'SIGCONT'));
    },
    async 'synchronous standby frozen'() {
      const { folder } = await cluster.synchronousStandby(await cluster.whole());
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
  const all = Object.values(faults);
  while (history.calls < CALLS || injected < all.length) {
    await history.progress(CALLS_BETWEEN_FAULTS);
    await all[injected++ % all.length]!();
  }
  await history.progress(CALLS_BETWEEN_FAULTS);
  await history.stop();
  const { stdout } = await promisify(execFile)(checker, [file]).catch(({ message, stdout }) =>
    assert.fail(`${message}\n${stdout}`),
  );
  t.diagnostic(`${injected} faults, ${history.unknown} calls of unknown outcome; ${stdout.trim()}`);
});
