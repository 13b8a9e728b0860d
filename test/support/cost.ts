// Measures the cost of measuring, in a separate process: in the test runner's, which tracks every
// promise, a promise costs ten times as much. Prints nanoseconds as JSON.
import { MeasuredStore } from '../../src/ops/measured.ts';
import { Metrics } from '../../src/ops/metrics.ts';
import { routes } from '../../src/routes.ts';
import type { UserStore } from '../../src/user.ts';

const CALLS = 200_000;
const ROUNDS = 10;

const answers = Object.keys(routes).flatMap((key) => {
  const [method = '', route = ''] = key.split(' ');
  return [200, 404, 500].map((status) => ({ method, route, status }));
});
const metrics = new Metrics({ routes, engine: 'sqlite', connections: () => undefined });
const bare = { find: async () => undefined } as unknown as UserStore;
const measured = new MeasuredStore(bare, {
  timeoutMs: 5000,
  now: () => performance.now(),
  record: metrics.operation.bind(metrics),
});

/** CPU time of one call in the best round: other programs can only make a round slower. */
async function nanoseconds(round: () => void | Promise<void>): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < ROUNDS; i++) {
    const { user, system } = process.threadCpuUsage();
    await round();
    const spent = process.threadCpuUsage({ user, system });
    best = Math.min(best, ((spent.user + spent.system) * 1e3) / CALLS);
  }
  return best;
}

const request = await nanoseconds(() => {
  for (let i = 0; i < CALLS; i++) {
    const answered = answers[i % answers.length]!;
    metrics.begin(answered.method);
    metrics.end(answered, i % 100);
  }
});
const calls = (store: UserStore) =>
  nanoseconds(async () => {
    for (let i = 0; i < CALLS; i++) await store.find(i);
  });
const call = (await calls(measured)) - (await calls(bare));
metrics.close();
process.stdout.write(`${JSON.stringify({ request, call })}\n`);
