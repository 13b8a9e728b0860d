// What can happen in a story: calls, and faults of the server and the network.
import fc from 'fast-check';
import { anyCall } from '../support/store-model.ts';
import { NORMAL } from './server.ts';
import { type Action, TIMEOUT_MS, type World } from './world.ts';

/** An event of a story, and the time that passes after it. */
function event(text: string, ms: number, act: (world: World) => void) {
  const run = (world: World) => {
    act(world);
    return world.pass(ms);
  };
  return { run, [fc.toStringMethod]: () => `${text}; then ${ms} ms pass\n` };
}

const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 13, arbitrary: anyCall },
  { weight: 1, arbitrary: fc.constant({ kind: 'ping' }) },
);
const network = fc.constantFrom('a', 'b', 'c');
const soon = fc.constantFrom(0, 0, 0, 1, 3, 10, 30);
const later = fc.constantFrom(1, 30, 100, 300, 1000, 3000);

const call = fc
  .tuple(action, network, soon)
  .map(([what, from, ms]) =>
    event(`${from}: ${JSON.stringify(what)}`, ms, (world) => world.call(what, from)),
  );

/** A client gives many emails to users and new users, in opposite orders, or one email to many. */
const kinds = fc.constantFrom('crossing', 'one email', 'one user');
const burst = fc.tuple(fc.integer({ min: 2, max: 40 }), kinds, soon).map(([count, kind, ms]) =>
  event(`a: ${kind === 'crossing' ? 2 * count : count} calls, ${kind}`, ms, (world) => {
    for (let n = 0; n < count; n++) {
      const id = kind === 'one user' ? 1 : n + 1;
      const email = `crossing${100 + count - n}@x`;
      const change = { crossing: { email }, 'one email': { email: 'a@x' }, 'one user': {} }[kind];
      if (kind === 'crossing') world.call({ kind: 'create', email: `crossing${100 + n}@x` });
      world.call({ kind: 'update', id, change: change! });
    }
  }),
);

const removal = fc.tuple(fc.integer({ min: 1, max: 8 }), soon).map(([id, ms]) =>
  event(`a: 2 deletes of user ${id}`, ms, (world) => {
    for (let n = 0; n < 2; n++) world.call({ kind: 'delete', id });
  }),
);

/** A fault, which ends after a time if it returns a function. */
function fault(text: string, start: (world: World) => unknown) {
  return fc.tuple(later, fc.constantFrom(0, 1, 20, 100, 600)).map(([lastsMs, ms]) =>
    event(`${text} (lasts ${lastsMs} ms)`, ms, (world) => {
      world.isCalm = false;
      const end = start(world);
      if (typeof end === 'function') world.time.after(lastsMs, () => end());
    }),
  );
}

const backends = ({ server }: World) => server.hosts.flatMap((host) => [...host.backends]);
const primary = ({ server }: World) => server.hosts.find((host) => !host.isReadOnly)!;

const ofServer = (text: string, condition: Partial<typeof NORMAL>) =>
  fault(text, (world) => change(world, condition));

/** Changes the condition of the server. Returns a function that ends the change. */
function change({ server }: World, condition: Partial<typeof NORMAL>): () => void {
  const normal = Object.entries(NORMAL).filter(([name]) => name in condition);
  Object.assign(server.condition, condition);
  return () => Object.assign(server.condition, Object.fromEntries(normal));
}

const faults = [
  ...(['cut', 'silence', 'kill'] as const).flatMap((act) =>
    [1, 100].map((count) =>
      fault(`${act} of ${count} connections`, (world) => {
        for (const backend of backends(world).slice(-count)) backend[act]();
      }),
    ),
  ),
  fault('the primary refuses connections', (world) => {
    const host = primary(world);
    host.isUp = false;
    for (const backend of host.backends) backend.kill();
    return () => Object.assign(host, { isUp: true });
  }),
  fault('the primary hangs', (world) => {
    world.latestMs = Number.POSITIVE_INFINITY;
    primary(world).frozenUntil = world.time.ms + 1500;
  }),
  fault('the hosts change roles (25006)', ({ server }) => {
    if (server.hosts.some(({ old }) => old)) return;
    for (const host of server.hosts) host.isReadOnly = !host.isReadOnly;
  }),
  fault('the other host is promoted, and the old primary is not fenced', ({ server }) =>
    server.split(),
  ),
  ofServer('new connections are lost at once', { isCrashing: true }),
  fc.oneof(
    ...['40001', '57014'].map((readFault) =>
      ofServer(`half of the reads fail with ${readFault}`, { readFault }),
    ),
    ...['40001', '53100', '55P03', '57014'].map((writeFault) =>
      ofServer(`half of the writes fail with ${writeFault}`, { writeFault }),
    ),
  ),
  fc.oneof(
    fault('commits wait for a synchronous standby', ({ server }) => server.hold('standby')),
    fault('the same, until an operator cancels', ({ server }) => server.hold('standby', true)),
  ),
  ...[3_600_000, 400, -400].map((stepMs) =>
    fault(`the clock of the server steps by ${stepMs} ms`, (world) => {
      if (stepMs < 0) world.latestMs = Number.POSITIVE_INFINITY;
      world.server.clockMs += stepMs;
    }),
  ),
  fault('another session locks user 1', ({ server }) => server.lock(1)),
  fault('another session locks the table', ({ server }) => server.lock(undefined)),
  fault('another session locks what deferred constraints need, 1500 ms longer', (world) => {
    world.latestMs = Math.max(world.latestMs, 3 * TIMEOUT_MS + 100);
    const end = world.server.hold('constraint');
    return () => world.time.after(1500, end);
  }),
  ...[1, 2].map((count) =>
    fault(`the server allows ${count} connections (53300)`, (world) => {
      for (const backend of backends(world).slice(count)) backend.kill();
      return change(world, { maxBackends: count });
    }),
  ),
  ...[300, 3000].map((maxLatencyMs) =>
    ofServer(`each way takes up to ${maxLatencyMs} ms`, { maxLatencyMs }),
  ),
  fault('the callers of network b leave', ({ left }) => {
    left.add('b');
    return () => left.delete('b');
  }),
];

const anyEvent = fc.oneof(call, call, burst, removal, ...faults);

export const stories = fc.oneof(
  { weight: 1, arbitrary: fc.array(fc.oneof(call, burst), { maxLength: 30, size: 'max' }) },
  { weight: 3, arbitrary: fc.array(anyEvent, { maxLength: 40, size: 'max' }) },
);
