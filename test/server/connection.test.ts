// Connections over fake sockets: random requests in random pieces, slow readers, late responses, resets and
// stops. EVENTS sets the number of events, and FAST_CHECK_SEED repeats a run. The clock is the test's, so
// nothing waits for a time; node's own timeouts arrive as the events that node documents.
import assert from 'node:assert/strict';
import { subscribe } from 'node:diagnostics_channel';
import http from 'node:http';
import { after, describe, mock, type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import type { Context, Services } from '../../src/route.ts';
import { splitResponses } from '../support/client.ts';
import { collect } from '../support/garbage.ts';
import '../support/seed.ts';
import { Peer } from '../support/peer.ts';

const EVENTS = Number(process.env.EVENTS ?? 20_000);
const MAX_EVENTS = 80; // of one run; fast-check makes half as many on average

// clock.ts takes both when it is loaded, so the service is loaded after this.
const clock = { ms: 1_000 };
const nows = mock.method(performance, 'now', () => clock.ms);
const servers = mock.method(http, 'createServer');
mock.timers.enable({ apis: ['setInterval'] });
const { Listener } = await import('../../src/server/listener.ts');
const { Connection, REASONS } = await import('../../src/server/connection.ts');
const { Ledger } = await import('../../src/server/ledger.ts');
const { Turns } = await import('../../src/server/turns.ts');
const { Pipeline } = await import('../../src/pipeline.ts');
const { text } = await import('../../src/http/reply.ts');
after(() => mock.reset());

const UNREAD_MS = 60_000;
const SWEEP_MS = 500;
const LARGE = 'x'.repeat(60_000);
const LINGER_MS = 2_000;
const CONNECTION_BYTES = 32 * 1024;
const ALL = Number.MAX_SAFE_INTEGER / 4;

type Reason = (typeof REASONS)[number];

/** A kind of request: its text, its method, and why the connection may end after it. */
interface Kind {
  readonly head: string; // without Host and X-Request-Id
  readonly body: string;
  readonly ends: readonly Reason[];
}
const kind = (head: string, body = '', ...ends: readonly Reason[]): Kind => ({ head, body, ends });

const get = (path: string, fields = '') => `GET ${path} HTTP/1.1\r\n${fields}`;
const JSON_TYPE = 'application/json';
const post = (fields: string) =>
  `POST /body HTTP/1.1\r\nContent-Type: ${JSON_TYPE}\r\n${fields}\r\n`;
const OFFER = 'Connection: upgrade\r\nUpgrade: h2c\r\n';
const CHUNKED = 'Transfer-Encoding: chunked';
const KINDS: Readonly<Record<string, Kind>> = {
  now: kind(get('/now')),
  head: kind('HEAD /now HTTP/1.1\r\n'),
  options: kind('OPTIONS /now HTTP/1.1\r\n'),
  late: kind(get('/late')),
  large: kind(get('/large')),
  pieces: kind(get('/pieces')),
  unknown: kind(get('/unknown')),
  broken: kind(get('/broken'), '', 'failed'),
  // Node refuses input that follows a request with `Connection: close`.
  close: kind(get('/now', 'Connection: close\r\n'), '', 'last', 'refused'),
  old: kind('GET /now HTTP/1.0\r\n', '', 'last', 'refused'),
  oldPieces: kind('GET /pieces HTTP/1.0\r\n', '', 'last', 'refused'),
  upgrade: kind(get('/now', OFFER), '', 'last'),
  upgradeBody: kind(post(`${OFFER}Content-Length: 4`), '[12]', 'last', 'refused'),
  // A body that follows a request in progress ends the connection (2.11).
  post: kind(post('Content-Length: 6'), '[1234]', 'last'),
  chunks: kind(post(CHUNKED), '1\r\n[\r\n2\r\n1]\r\n0\r\n\r\n', 'last'),
  expect: kind(post('Expect: 100-continue\r\nContent-Length: 4'), '[12]', 'last'),
  early: kind('POST /late HTTP/1.1\r\nContent-Length: 9\r\n', '[1234567]', 'last'),
  tooLarge: kind(post('Content-Length: 999999'), 'x'.repeat(99), 'last'),
  garbage: kind('NONSENSE\r\n', '', 'refused', 'last'),
  badChunk: kind(post(CHUNKED), 'zz\r\n', 'last', 'refused'),
  twoHosts: kind(get('/now', 'Host: b\r\n'), '', 'last'),
  connect: kind('CONNECT a:1 HTTP/1.1\r\n', '', 'refused', 'last'),
};

const late: (() => void)[] = [];
let isStopping = false;
let draining: Promise<void> | undefined; // Responses wait for it.
let inProgress = 0; // requests that have begun and are not recorded
const lately = () => new Promise<void>((resolve) => void late.push(resolve));
const pieces = (hasEnd: boolean) => {
  let next = 0;
  return {
    next() {
      if (++next === 2) {
        return lately().then(() => {
          if (!hasEnd) throw new Error('broken');
          return Buffer.from('piece 2');
        });
      }
      return next < 5 ? Buffer.from(`piece ${next}`) : undefined;
    },
  };
};
let body: WeakRef<object> | undefined; // of POST /kept
function rememberBody(context: Context) {
  body = new WeakRef(context.body as object);
  return lately().then(() => text(200, 'kept'));
}
const common = { access: 'none', accepts: [], returns: [], summary: '' } as const;
const pipeline = new Pipeline({
  routes: {
    'GET /now': { ...common, handle: () => text(200, 'now') },
    'GET /late': { ...common, handle: () => lately().then(() => text(200, 'late')) },
    'GET /large': { ...common, handle: () => text(200, LARGE) },
    'GET /pieces': { ...common, handle: () => ({ status: 200, type: 'a/b', body: pieces(true) }) },
    'GET /broken': { ...common, handle: () => ({ status: 200, type: 'a/b', body: pieces(false) }) },
    'POST /kept': { ...common, accepts: [JSON_TYPE], handle: rememberBody },
    'POST /body': { ...common, accepts: [JSON_TYPE], handle: ({ body }) => text(200, `${body}`) },
  },
  services: { protectUsers: false, trustProxy: 0 } as Services, // No handler uses another.
  ...{ bodyLimitBytes: 1_000, corsOrigin: undefined, now: () => clock.ms },
  stopping: () => draining ?? (isStopping ? turn() : undefined),
  begin: () => {
    inProgress++;
    clock.ms += 4; // A request takes time, so some wait for a later turn of the event loop.
  },
  record: ({ startMs }) => {
    if (startMs >= 1_000) inProgress--; // by the test's clock
  },
});

/** A client, with what it has sent and why its connection may end. */
class Client {
  readonly peer: Peer;
  readonly excuses = new Set<Reason>();
  readonly #requests: { id: string; kind: Kind; end: number }[] = []; // in their order; `end` in #text
  #text = ''; // all requests
  #sentLength = 0;
  #limit = 33; // requests that must get a response at most: one in progress and 32 that wait
  #isFinSent = false;
  readonly #listeners = new Map<string | symbol, number>();

  constructor(peer: Peer) {
    this.peer = peer;
    for (const name of peer.eventNames()) this.#listeners.set(name, peer.listenerCount(name));
  }

  write(kind: Kind, id: string): void {
    const { head, body, ends } = kind;
    for (const reason of ends) this.excuses.add(reason);
    this.#text += `${head}Host: a\r\nX-Request-Id: ${id}\r\n\r\n${body}`;
    this.#requests.push({ id, kind, end: this.#text.length });
    if (this.#requests.length > 33) this.excuses.add('last'); // 2.11
  }

  send(share: number): void {
    if (this.#isFinSent) return;
    const rest = this.#text.length - this.#sentLength;
    const end = this.#sentLength + Math.ceil(rest * share);
    const text = this.#text.slice(this.#sentLength, end);
    this.#sentLength = end;
    if (text !== '') this.peer.send(text);
  }

  sendFin(): void {
    if (this.#isFinSent) return;
    this.#isFinSent = true;
    this.endAfterSent(['client', 'last', 'refused']); // Half a request is malformed.
    this.peer.sendFin();
  }

  reset(): void {
    this.fail('client');
    this.peer.destroy(Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' }));
  }

  /** From now on the connection may close at once. */
  fail(...reasons: readonly Reason[]): void {
    for (const reason of reasons) this.excuses.add(reason);
    this.#limit = 0;
  }

  /** From now on the connection may end after the responses to what has been sent, except its last bytes. */
  endAfterSent(reasons: readonly Reason[], unreadBytes = 0): void {
    for (const reason of reasons) this.excuses.add(reason);
    const length = this.#sentLength - unreadBytes;
    const requests = this.#requests.filter(({ end }) => end <= length).length;
    this.#limit = Math.min(this.#limit, requests);
  }

  /** Checks what the client has received so far. */
  check(): void {
    const { responses, rest } = this.#read();
    const ids = this.#requests.map(({ id }) => id);
    const answered = responses.filter(({ id }) => ids.includes(id)).map(({ id }) => id);
    assert.deepEqual(answered, ids.slice(0, answered.length), '2.11 in order, each once');
    responses.forEach(({ id, status, isLast, isComplete }, i) => {
      const isFinal = i === responses.length - 1;
      const isRefusal = !ids.includes(id);
      assert.ok(isFinal || !isRefusal, `2.3 nothing follows a refusal: ${status}`);
      assert.ok(isFinal || !isLast, '2.3 nothing follows the last response');
      if (isRefusal && isComplete) assert.ok(isLast, 'a refusal is the last');
    });
    if (responses.at(-1)?.isLast) assert.equal(rest, '', 'nothing follows the last response');
    assert.ok(!this.peer.isCut, 'a response that ends early is reset');
  }

  /** Checks that nothing is missing. Call it when all has been sent, processed and taken. */
  checkAll(): void {
    const { responses } = this.#read();
    const { length } = this.#requests;
    const first = this.#requests.findIndex(({ kind }) => kind.ends.length > 0);
    const before = first < 0 ? length : first;
    // The first request of a connection gets a response, whatever the connection ends for.
    const hasOwn = first === 0 && !this.#requests[0]!.kind.ends.includes('failed');
    const count = Math.min(before + (hasOwn ? 1 : 0), this.#limit);
    const complete = responses.filter(({ isComplete }) => isComplete);
    assert.ok(complete.length >= count, `${count} responses, not ${complete.length}`);
    if (this.excuses.size > 0) return;
    assert.equal(complete.length, length, 'every request has a response');
    assert.ok(!this.peer.hasFin && !this.peer.destroyed, 'the connection is kept');
  }

  /** True if all its requests have their responses. */
  get isAnswered(): boolean {
    const { responses } = this.#read();
    return responses.filter(({ isComplete }) => isComplete).length === this.#requests.length;
  }

  /** Checks that requests have left no listeners on the socket. */
  checkClosed(): void {
    const { peer } = this;
    assert.ok(peer.isClosed);
    const most = (name: string | symbol) => Math.max(this.#listeners.get(name) ?? 0, 1);
    const added = peer.eventNames().filter((name) => peer.listenerCount(name) > most(name));
    assert.deepEqual(added, []);
  }

  #read() {
    const heads = this.#requests.filter(({ kind }) => kind === KINDS.head).map(({ id }) => id);
    return read(this.peer, (id) => heads.includes(id));
  }
}

/** Reads final responses as a client does, up to the first that is incomplete. `isHead` says which have no body. */
function read({ output, hasFin }: Peer, isHead: (id: string) => boolean) {
  const idOf = (headers: Headers) => headers.get('x-request-id') ?? '';
  const { responses, rest } = splitResponses(output, (headers) => isHead(idOf(headers)), hasFin);
  const final = responses.filter(({ status }) => status >= 200);
  return {
    rest,
    responses: final.map(({ status, headers, isComplete }) => {
      const isLast = headers.get('connection') === 'close';
      assert.ok(Date.parse(headers.get('date') ?? ''), 'every response has a Date, refusals too');
      return { status, isComplete, isLast, id: idOf(headers) };
    }),
  };
}

interface Event {
  readonly name: string;
  readonly client: number;
  readonly kind: string;
  readonly share: number; // of what could be sent or taken
}

const EVENT_NAMES = [
  ...['write', 'write', 'write', 'send', 'send', 'send', 'sendAll', 'sendAll'],
  ...['turn', 'turn', 'turn', 'take', 'take', 'takeAll', 'reply', 'reply', 'pass', 'connect'],
  ...['fin', 'reset', 'timeout', 'idle', 'age', 'stop'],
];
// Most runs are of friendly requests, so that long sequences have no excuse.
const FRIENDLY = Object.keys(KINDS).filter((name) => KINDS[name]!.ends.length === 0);
const eventOf = (kinds: readonly string[], names: readonly string[]) =>
  fc.record<Event>({
    name: fc.constantFrom(...names),
    client: fc.nat(3),
    kind: fc.constantFrom(...kinds),
    share: fc.double({ min: 0.01, max: 1, noNaN: true }),
  });
const friendly = EVENT_NAMES.slice(0, EVENT_NAMES.indexOf('fin'));
const options = { maxLength: MAX_EVENTS, size: 'max' } as const;
const run = fc.record({
  events: fc.oneof(
    fc.array(eventOf(FRIENDLY, friendly), options),
    fc.array(eventOf(Object.keys(KINDS), EVENT_NAMES), options),
    fc.array(eventOf(Object.keys(KINDS), [...friendly, ...friendly, ...EVENT_NAMES]), options),
  ),
  maxConnections: fc.constantFrom(2, 3, 10_000, 10_000),
  windowBytes: fc.constantFrom(0, 500, Number.MAX_SAFE_INTEGER),
});
type Run = typeof run extends fc.Arbitrary<infer T> ? T : never;

function listen(maxConnections: number) {
  // Mocks keep their calls; those of millions of events would fill the memory.
  for (const { mock } of [nows, servers]) mock.resetCalls();
  isStopping = false;
  const timeouts = { idleTimeoutMs: 65_000, unreadTimeoutMs: UNREAD_MS };
  const listener = new Listener(pipeline, { limits: limitsOf(maxConnections), ...timeouts });
  return { listener, server: servers.mock.calls[0]!.result! };
}

function limitsOf(maxConnections: number) {
  const bytes = { connectionBytes: CONNECTION_BYTES, modestBytes: CONNECTION_BYTES };
  return { ...bytes, budgetBytes: 1e9, maxConnections, sockets: 1 };
}

async function play({ events, maxConnections, windowBytes }: Run): Promise<void> {
  const { listener, server } = listen(maxConnections);
  const clients: Client[] = [];
  inProgress = 0;
  let requests = 0;
  let stopped: Promise<void> | undefined;
  const connect = () => {
    const isFull = clients.filter(({ peer }) => !peer.isClosed).length >= maxConnections;
    const peer = new Peer(`192.0.2.${clients.length}`, windowBytes);
    peer.on('error', () => {});
    server.emit('connection', peer);
    clients.push(new Client(peer));
    if (isFull) for (const client of clients) client.fail('room');
  };
  const pass = (ms: number) => {
    clock.ms += ms;
    mock.timers.tick(SWEEP_MS);
  };
  const actions: Readonly<Record<string, (client: Client, event: Event) => void | Promise<void>>> =
    {
      connect: () => void (clients.length < 5 && !isStopping && connect()),
      write: (client, { kind }) => client.write(KINDS[kind]!, `r${++requests}`),
      send: (client, { share }) => client.send(share),
      sendAll: (client) => client.send(1),
      take: ({ peer }, { share }) => peer.receive(Math.ceil(share * 20_000)),
      takeAll: ({ peer }) => peer.receive(ALL),
      reply: (_client, { share }) => late.splice(Math.floor(share * late.length), 1)[0]?.(),
      turn: () => turn(),
      pass: (_client, { share }) => pass(share * 1_000),
      fin: (client) => client.sendFin(),
      reset: (client) => client.reset(),
      timeout: (client) => {
        if (client.peer.destroyed) return;
        client.endAfterSent(['timeout', 'last'], client.peer.readableLength);
        const error = Object.assign(new Error(), { code: 'ERR_HTTP_REQUEST_TIMEOUT' });
        server.emit('clientError', error, client.peer);
      },
      idle: (client) => {
        if (client.peer.destroyed) return;
        client.fail('idle');
        server.emit('timeout', client.peer);
      },
      age: () => {
        for (const client of clients) client.fail('unread', 'last');
        pass(UNREAD_MS + 1);
      },
      stop: () => {
        if (isStopping) return;
        for (const client of clients) client.endAfterSent(['stopped', 'last']);
        isStopping = true;
        stopped = listener.stop(SWEEP_MS, 0);
      },
    };
  connect();
  for (const event of events) {
    await actions[event.name]!(clients[event.client % clients.length]!, event);
    for (const client of clients) client.check();
    const open = clients.filter(({ peer }) => !peer.isClosed);
    const { states } = listener.usage();
    const total = Object.values(states).reduce((sum, count) => sum + count, 0);
    assert.equal(total, open.length, 'each connection is in one state');
  }

  // All is sent, taken and answered.
  for (const { peer } of clients) peer.receive(ALL);
  for (const client of clients) client.send(1);
  await quiet(clients);
  for (const client of clients) {
    client.check();
    client.checkAll();
  }
  const open = clients.filter(({ peer }) => !peer.destroyed);
  const { heldBytes, states } = listener.usage();
  if (states.idle === open.length) {
    assert.equal(heldBytes, open.length * CONNECTION_BYTES, 'idle connections hold nothing else');
  }
  const kept = open.filter(({ excuses }) => excuses.size === 0);
  assert.ok(states.idle >= kept.length, 'a connection that is kept is idle');
  for (const client of kept) client.sendFin();
  await quiet(clients);
  for (const { peer } of kept) assert.ok(peer.destroyed, 'it closed its side');
  pass(LINGER_MS + 1);
  await quiet(clients);
  for (const { peer } of clients) assert.ok(peer.destroyed || !peer.hasFin, 'lingering ends');
  for (const client of clients) if (!client.peer.destroyed) client.fail('stopped');
  const answered = clients.filter(({ peer, isAnswered }) => !peer.destroyed && isAnswered);
  listener[Symbol.dispose]();
  await stopped;
  await quiet(clients);
  for (const { peer } of answered) assert.ok(!peer.isReset, 'only a request is reset');

  assert.equal(inProgress, 0, '6.8 7.3 each request is recorded once');
  const { closed, ...rest } = listener.usage();
  assert.equal(rest.heldBytes, 0, 'charges return to 0');
  assert.ok(Object.values(rest.states).every((count) => count === 0));
  const total = Object.values(closed).reduce((sum, count) => sum + count, 0);
  assert.equal(total, clients.length, 'each connection is counted once');
  for (const reason of REASONS) {
    const excused = clients.filter(({ excuses }) => excuses.has(reason)).length;
    assert.ok(closed[reason] <= excused, `${closed[reason]} closed: ${reason}; causes: ${excused}`);
  }
  for (const client of clients) client.checkClosed();
}

/** Resolves once replies and turns change nothing more. */
async function quiet(clients: readonly Client[]): Promise<void> {
  let before = '';
  for (let same = 0; same < 4; ) {
    for (const reply of late.splice(0)) reply();
    await turn();
    const state = clients.map(({ peer }) => `${peer.output.length} ${peer.destroyed}`).join();
    same = state === before && late.length === 0 ? same + 1 : 0;
    before = state;
  }
}

let parsed = 0; // requests
subscribe('http.server.request.start', () => void parsed++);

/** Returns what a client gets for its input, exactly, and why its connection ends. `!` is `Connection: close`. */
async function outcomeOf(
  input: string,
  act: (peer: Peer, server: http.Server, usage: () => { heldBytes: number }) => void,
) {
  const { listener, server } = listen(9);
  const peer = new Peer('192.0.2.1', ALL);
  const useUserBuffer = mock.fn();
  const handle = { useUserBuffer, close: setImmediate, readStart() {}, readStop() {} };
  Object.assign(peer, { _handle: handle }).on('error', () => {});
  server.emit('connection', peer);
  const client = new Client(peer);
  peer.send(input);
  for (let turns = 0; turns < 4; turns++) await turn();
  act(peer, server, () => listener.usage());
  await quiet([client]);
  const { responses } = read(peer, () => false);
  const before = parsed;
  if (peer.hasFin) peer.send(NOW);
  assert.equal(useUserBuffer.mock.callCount() > 0, peer.hasFin, 'what is dropped takes no memory');
  await turn();
  assert.equal(parsed, before, '2.10 input after the last response is not even parsed');
  clock.ms += LINGER_MS + 1;
  mock.timers.tick(SWEEP_MS);
  await quiet([client]);
  const { closed, heldBytes } = listener.usage();
  const kept = peer.destroyed ? 0 : CONNECTION_BYTES;
  assert.equal(heldBytes, kept, 'requests are refunded');
  const statuses = responses.map(({ status, isLast }) => (isLast ? `${status}!` : status));
  if (responses.at(-1)?.status === 405) assert.match(peer.output, /\r\nAllow: GET/);
  const isChunked = /(pieces|broken) HTTP\/1\.1/.test(input); // 2.4, 2.6
  assert.equal(peer.output.includes('\r\nTransfer-Encoding: chunked'), isChunked);
  const reason = REASONS.find((name) => closed[name] > 0) ?? 'kept';
  listener[Symbol.dispose]();
  await quiet([client]);
  return [...statuses, reason].join(' ');
}

const requests = (...kinds: readonly string[]) =>
  kinds.map((name) => `${KINDS[name]!.head}Host: a\r\n\r\n${KINDS[name]!.body}`).join('');
const manyLate = (count: number) => Array<string>(count).fill('late');
const half = (kind: string) => requests(kind).slice(0, -1);
const nothing = () => {};
const fin = (peer: Peer) => peer.sendFin();
const send = (input: string) => (peer: Peer) => peer.send(input);
const sendMore = send(requests('now', 'garbage'));
const NOW = requests('now');
const EXPECTING = NOW.replace('Host', 'Expect: 100-continue\r\nHost');
const unread = (field: string) => `POST /late HTTP/1.1\r\nHost: a\r\n${field}\r\n\r\n`;
const KEPT = 'Connection: keep-alive\r\nTE: chunked\r\n';
const kept = (route: string) => `${route} HTTP/1.0\r\n${KEPT}\r\n`;
const EARLY = unread(`Content-Length: ${NOW.length}`);
const TOO_LONG = `${post('Content-Length: 1001')}Host: a\r\n\r\n`;
const UPGRADE_CHUNKS = requests('chunks').replace('Host', `${OFFER}Host`);
const WITH_BODY = 'GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx';
const OFFERED = unread(`${OFFER}Content-Length: 4`);
const fail = (code: string) => (peer: Peer, server: http.Server) =>
  void server.emit('clientError', Object.assign(new Error(), { code }), peer);
const lose = (peer: Peer) => void peer.destroy(Object.assign(new Error(), { code: 'ETIMEDOUT' }));
const timeout = fail('ERR_HTTP_REQUEST_TIMEOUT');
/** Node's timer runs before a read, in the same turn of the event loop. */
const timeoutBefore = (act: (peer: Peer) => void) => (peer: Peer, server: http.Server) => {
  timeout(peer, server);
  act(peer);
};
const replyAll = () => late.splice(0).forEach((reply) => void reply());

describe('connections', () => {
  for (const [why, input, act, outcome] of [
    ['a client that resets', requests('now'), fail('ECONNRESET'), '200 client'],
    ['a network that fails', requests('now'), lose, '200 client'],
    ['input after the last request', requests('close', 'now'), nothing, '200! last'],
    ['input after an Expect without a body', EXPECTING + NOW, nothing, '200! last'],
    ['33 requests that wait', requests(...manyLate(34)), nothing, `${'200 '.repeat(32)}200! last`],
    ['a body behind two responses', requests('now', 'now', 'post'), nothing, '200 200 last'],
    ['and a tunnel', requests('now', 'now', 'post', 'connect'), nothing, '200 200 last'],
    ['input after an upgrade', requests('late', 'upgrade', 'now'), nothing, '200 200! last'],
    ['requests after it', requests('late', 'upgrade', 'now'), sendMore, '200 200! last'],
    ['an upgrade with a body', requests('upgradeBody'), nothing, '200 kept'],
    ['half the body of an upgrade', half('upgradeBody'), fin, '400! refused'],
    ['input after the body of an upgrade', requests('upgradeBody', 'now'), nothing, '200! last'],
    ['input after the end of its body', half('upgradeBody'), send(`]${NOW}`), '200! last'],
    ['the end of its body', half('upgradeBody'), send(']'), '200 kept'],
    ['an offer without its body', OFFERED, send(`[12]${NOW}`), '405! last'],
    ['input after its last byte', half('upgrade'), send(`\n${NOW}`), '200! last'],
    ['an upgrade with chunks', UPGRADE_CHUNKS, nothing, '200! last'],
    ['a tunnel', requests('connect'), nothing, '405! refused'],
    ['a tunnel after a request', requests('late', 'connect'), nothing, '200 405! refused'],
    ['a malformed head', requests('now', 'late', 'garbage'), nothing, '200 200 400! refused'],
    ['a malformed body', requests('badChunk'), nothing, '400! refused'],
    ['half a head', half('now'), fin, '400! refused'],
    ['a late body', half('post'), timeout, '408! timeout'],
    ['a late body after its response', half('early'), timeout, '405 timeout'],
    ['its end in time', half('early'), timeoutBefore(send('x')), '405 kept'],
    ['a response', requests('late') + NOW.slice(0, 9), timeoutBefore(replyAll), '200 408! timeout'],
    ['half a body after its response', half('early'), fin, '405 refused'],
    ['a request in a late body', EARLY + NOW.slice(0, 9), send(NOW.slice(9) + NOW), '405 200 kept'],
    ['a response that fails', requests('broken', 'now'), nothing, '200 failed'],
    ['a body over the limit', TOO_LONG, nothing, '413! last'],
    ['a short body, not yet here', unread('Content-Length: 102400'), nothing, '405 kept'],
    ['a long body', unread('Content-Length: 102401'), nothing, '405! last'],
    ['chunks', unread(CHUNKED), nothing, '405! last'],
    ['chunks that have been read', requests('chunks'), nothing, '200 kept'],
    ['a body after 100', requests('expect'), nothing, '200 kept'],
    ['HTTP/1.0', kept('GET /now'), nothing, '200 kept'],
    ['HTTP/1.0 without a body', kept('OPTIONS /now'), nothing, '204! last'],
    ['pieces, HTTP/1.0', kept('GET /pieces'), nothing, '200! last'],
    ['HEAD of pieces, HTTP/1.0', kept('HEAD /pieces'), nothing, '200! last'],
    ['HEAD of pieces', requests('pieces').replace('GET', 'HEAD'), nothing, '200 kept'],
  ] as const) {
    test(`2.3 6.3 ${why}: ${outcome.slice(-30)}`, async () =>
      assert.equal(await outcomeOf(input, act), outcome));
  }

  /** A connection over TLS, before its handshake. */
  function accept() {
    const [tcp, tls] = [new Peer('2001:db8:1:2::3', 0), new Peer('2001:db8:1:2::3', 0)];
    const ledger = new Ledger<InstanceType<typeof Connection>>(limitsOf(9));
    const zeros = Object.fromEntries(REASONS.map((reason) => [reason, 0]));
    const closed = zeros as Record<Reason, number>;
    const turns = new Turns();
    const shared = { handler: pipeline, ledger, closed, turns, unreadTimeoutMs: UNREAD_MS };
    const connection = new Connection(tcp, true, shared);
    const reasons = () => REASONS.filter((reason) => closed[reason] > 0);
    return { tcp, tls, connection, ledger, reasons };
  }

  /** Looks at the usage while a stop makes the response wait. */
  async function whileDraining(input: string, look: (heldBytes: number) => void) {
    const { promise, resolve } = Promise.withResolvers<void>();
    draining = promise;
    await outcomeOf(input, (_peer, _server, usage) => {
      look(usage().heldBytes);
      draining = undefined;
      resolve();
    });
  }

  test('6.17 a response that waits while a stop drains the queue is charged', () => {
    const input = requests('large');
    const bytes = CONNECTION_BYTES + 16 * 1024 + 2 * input.length + LARGE.length;
    return whileDraining(input, (heldBytes) => assert.equal(heldBytes, bytes));
  });

  test('6.17 a body that no route reads is dropped meanwhile', (t) => {
    const { mock } = t.mock.method(http.IncomingMessage.prototype, 'on');
    const isDropped = () => mock.calls.some(({ arguments: [, drop] }) => drop.name === 'free');
    return whileDraining(unread('Content-Length: 2'), () => assert.ok(isDropped()));
  });

  test('6.17 bodies behind a request in progress are dropped as they arrive', async (t) => {
    const { mock } = t.mock.method(http.IncomingMessage.prototype, 'on');
    assert.equal(await outcomeOf(requests('late', 'post', 'post'), nothing), '200! last');
    const read = mock.calls.filter(({ arguments: [event] }) => event === 'data');
    assert.equal(read.length, 2);
  });

  test('6.17 a body is read at once, also after the time of a turn', async () => {
    const { listener, server } = listen(9);
    const peers = [NOW, NOW, NOW, half('post')].map((input) => {
      const peer = new Peer('192.0.2.1', ALL);
      server.emit('connection', peer);
      return () => peer.send(input);
    });
    await new Promise(process.nextTick);
    for (const send of peers) send();
    assert.equal(listener.usage().states.receiving, 1);
    listener[Symbol.dispose]();
  });

  test('6.17 a body is not kept once its handler waits', async () => {
    const head = 'POST /kept HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';
    const isFreed = () => {
      collect();
      assert.equal(body?.deref(), undefined);
    };
    assert.equal(await outcomeOf(`${head}Content-Length: 4\r\n\r\n[12]`, isFreed), '200 kept');
  });

  for (const [state, limitMs, reason] of [
    ['sending', UNREAD_MS, 'unread'],
    ['lingering', LINGER_MS, 'client'],
  ] as const) {
    test(`6.3 2.13 a connection may be ${state} for exactly its limit`, () => {
      const { connection, reasons } = accept();
      for (const other of ['idle', 'receiving', 'working'] as const) {
        connection.enter(other);
        clock.ms += 1e9;
        connection.sweep();
        assert.equal(connection.state, other);
      }
      assert.equal(connection.waitingSinceMs, undefined); // The client waits for us.
      // Progress, such as a slice that the client has taken, begins the wait anew.
      for (let progress = 0; progress < 2; progress++) {
        connection.enter(state);
        clock.ms += limitMs;
        connection.sweep();
        assert.deepEqual([connection.state, reasons()], [state, []]);
      }
      clock.ms++;
      connection.sweep();
      assert.deepEqual([connection.state, reasons()], ['closed', [reason]]);
      connection.enter('idle');
      assert.equal(connection.state, 'closed');
    });
  }

  test('6.14 6.15 only an idle connection expires, after exactly its time; input keeps it, but not during a stop', async () => {
    for (const state of ['handshake', 'idle', 'receiving', 'working', 'sending'] as const) {
      for (const reason of ['idle', 'stopped'] as const) {
        for (const bytes of [0, 1]) {
          const { tcp, connection, reasons } = accept();
          connection.enter(state);
          clock.ms += 499;
          await connection.expire(reason, 500);
          assert.equal(connection.state, state);
          clock.ms++;
          const expired = connection.expire(reason, 500);
          tcp.bytesRead += bytes;
          await expired;
          const isIdle = state === 'handshake' || state === 'idle';
          const isKept = reason === 'idle' && bytes > 0;
          assert.deepEqual(reasons(), isIdle && !isKept ? [reason] : []);
        }
      }
    }
  });

  test('6.3 a client may send 64 KiB of TLS records without data between two sweeps', async () => {
    const { tcp, tls, connection, ledger, reasons } = accept();
    tcp.bytesRead = 8 * 1024; // by the handshake
    assert.deepEqual([connection.state, ledger.heldBytes], ['handshake', 2 * CONNECTION_BYTES]);
    connection.secure(tls);
    assert.deepEqual([connection.state, ledger.heldBytes], ['idle', CONNECTION_BYTES]);
    await turn();
    for (const dataBytes of [0, 0, 1000]) {
      tls.bytesRead += dataBytes;
      tcp.bytesRead += 32 * dataBytes + 65_536;
      connection.sweep();
    }
    assert.deepEqual(reasons(), []);
    tcp.bytesRead += 65_537;
    connection.sweep();
    assert.deepEqual([reasons(), ledger.heldBytes, tls.destroyed], [['records'], 0, true]);
  });

  test('6.3 64 KiB may wait for the client, with what TLS sends by itself', () => {
    const { tls, connection, reasons } = accept();
    const handle = { writeQueueSize: 65_536, close: () => {} };
    Object.assign(tls, { _handle: handle });
    connection.secure(tls);
    connection.sweep();
    assert.deepEqual(reasons(), []);
    handle.writeQueueSize++;
    connection.sweep();
    assert.deepEqual(reasons(), ['records']);
  });

  test('6.2 a stop ends a connection on which a request follows each response', async () => {
    const { listener, server } = listen(9);
    const peer = new Peer('192.0.2.1', ALL);
    server.emit('connection', peer);
    isStopping = true;
    for (let turns = 0; turns < 9; turns++) {
      peer.send(NOW + NOW);
      await turn();
    }
    assert.ok(peer.hasFin && read(peer, () => false).responses.at(-1)!.isLast);
    listener[Symbol.dispose]();
  });

  test('6.17 what a long handshake leaves behind is charged, and not the data behind it', async () => {
    const { tcp, tls, connection, ledger } = accept();
    const short = accept();
    short.connection.secure(short.tls);
    const { key, site } = connection.network;
    assert.deepEqual([key, site?.key], ['2001:db8:1:2', '2001:db8:1::/48']);
    tcp.bytesRead = 8 * 1024 + 60_000 + 5_000;
    connection.secure(tls);
    tls.bytesRead = 5_000; // of the same read, which node decrypts now
    await turn();
    assert.equal(ledger.heldBytes + short.ledger.heldBytes, 2 * (CONNECTION_BYTES + 60_000));
    connection.close();
    connection.charge(1); // by a request that still runs
    assert.equal(ledger.heldBytes, 0);
    assert.ok(tls.isClosed, 'node frees its requests in the turn that closes it');
  });

  test('while clients connect, tasks take 10 ms of a turn, in their order', async () => {
    const turns = new Turns();
    let ran = '';
    const run = (name: string) =>
      turns.run(() => {
        ran += name;
        clock.ms += 5;
        if (name === 'f') run('i'); // behind those that wait
      });
    const seen: string[] = [];
    for (const names of ['abc', '!!defghjk', '', '', '', 'lmn', '!', '!', 'opq', '']) {
      for (const name of names) name === '!' ? turns.onAccept() : run(name);
      seen.push(ran);
      ran = '';
      await turn();
    }
    assert.deepEqual(seen, ['abc', 'de', 'fg', 'hj', 'ki', 'lmn', '', '', 'op', 'q']);
  });

  /** Starts the service with listeners that neither listen nor stop. Returns them, and what connects to one. */
  async function startOnPeers(t: TestContext) {
    const { startService } = await import('../../src/service.ts');
    const { readConfig } = await import('../../src/config.ts');
    const { Log } = await import('../../src/ops/log.ts');
    servers.mock.resetCalls();
    const binds = t.mock.method(Listener.prototype, 'listen', async () => 0);
    const stops = t.mock.method(Listener.prototype, 'stop', async () => {});
    const stop = { SHUTDOWN_DELAY_MS: '50', SHUTDOWN_TIMEOUT_MS: '300' };
    const store = { DATABASE_URL: 'sqlite::memory:', DATABASE_TIMEOUT_MS: '7000' };
    const config = readConfig({ ...store, ...stop, ADMIN_PORT: '0' });
    const service = await startService(config, new Log('silent', 'json', async () => ''), nothing);
    const [api, admin] = binds.mock.calls.map((one) => one.this as InstanceType<typeof Listener>);
    const connect = (listener: 'api' | 'admin', windowBytes: number) => {
      const peer = new Peer('192.0.2.1', windowBytes);
      servers.mock.calls[listener === 'api' ? 0 : 1]!.result!.emit('connection', peer);
      return peer;
    };
    return { service, api: api!, admin: admin!, stops, connect };
  }

  test('6.2 6.3 6.15 the service passes its times, and the limits for probes, on to its listeners', async (t) => {
    const { service, admin, stops, connect } = await startOnPeers(t);
    assert.equal(admin.usage().maxConnections, 64);
    const unread = connect('api', 0);
    Object.assign(unread, { _handle: { writeQueueSize: 1, close() {}, readStart() {} } });
    unread.send(WITH_BODY);
    for (const ms of [7_000, 60_000, 1]) {
      assert.ok(!unread.destroyed);
      await quiet([]);
      clock.ms += ms;
      mock.timers.tick(SWEEP_MS);
      unread.send(NOW); // It prolongs nothing.
    }
    assert.ok(unread.destroyed);
    assert.equal(await service.stop(), true);
    const calls = stops.mock.calls.map((one) => one.arguments.join());
    assert.deepEqual(calls, ['500,150', '0,0']); // the API, then probes in flight
  });

  for (const [state, listener, windowBytes] of [
    ['working', 'api', ALL],
    ['sending', 'api', 0],
    ['sending', 'admin', 0],
  ] as const) {
    test(`6.2 a stop reports that it cut a request: ${state}, ${listener} listener`, async (t) => {
      const { service, api, connect } = await startOnPeers(t);
      const late = connect(listener, windowBytes);
      const stopped = service.stop();
      if (state === 'working') api.draining = new Promise(() => {}); // Its response waits.
      late.send(NOW);
      await quiet([]);
      assert.equal(late.output, '');
      assert.equal(await stopped, false);
    });
  }

  test('6.8 7.3 a stream behind a response that nobody reads is recorded once the client leaves', () => {
    const steps = ['write now', 'sendAll', 'turn', 'write pieces', 'sendAll', 'turn', 'reset'];
    const events = steps.map((step) => {
      const [name = '', kind = ''] = step.split(' ');
      return { name, kind, client: 0, share: 1 };
    });
    return play({ events, maxConnections: 10_000, windowBytes: 0 });
  });

  test('2.3 2.11 6.3 answer in order, end for a named reason, and leave nothing behind', async () => {
    const property = fc.asyncProperty(run, play);
    const timers = process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
    await fc.assert(property, { numRuns: Math.ceil(EVENTS / (MAX_EVENTS / 2)) });
    const left = process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
    assert.equal(left, timers, 'no timer is left');
  });
});
