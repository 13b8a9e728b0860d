// The attacks, as one table. Each runs until its process ends.
import { createHmac, randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { type Act, type Attacker, every } from './attacker.ts';

export interface Attack {
  readonly name: string;
  readonly does: 'holds' | 'computes'; // What computes is compared with bare node:http.
  readonly run: (a: Attacker) => void;
  readonly addresses: number; // of the attacker, each in a network of its own
  readonly settings?: Readonly<Record<string, string>>;
  readonly transport?: 'plain' | 'tls'; // the only useful one
  readonly store?: 'sqlite' | 'postgres'; // the only useful one
  readonly delay?: 'slow' | 'frozen'; // of the way to Postgres
  readonly users?: number; // in the store; honest clients read one, too
  readonly leavesLogUnread?: boolean;
}

type Needs = Omit<Attack, 'name' | 'does' | 'run'>;

const attack = (does: Attack['does']) => (name: string, needs: Needs, run: Attack['run']) => {
  return { name, does, run, ...needs };
};
const holds = attack('holds');
const computes = attack('computes');

const JSON_TYPE = 'application/json';
const FORM_TYPE = 'application/x-www-form-urlencoded';
const BODY_BYTES = 16_000; // just below the default limit
const HEAD_BYTES = 15_000; // just below the limit
const UNREAD = { isUnread: true, lifeMs: 4_000 } as const;
const FAILURES = 5; // that lock an address, where they are limited
const FROZEN = { store: 'postgres', delay: 'frozen', users: 10 } as const;
const SLOW = { store: 'postgres', delay: 'slow', settings: { DATABASE_POOL_SIZE: '2' } } as const;

function get(path: string, headers = '', method = 'GET'): string {
  return `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n`;
}

function post(type: string, body: string, headers = '', path = '/token'): string {
  const head = `Content-Type: ${type}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${headers}`;
  return get(path, head, 'POST') + body;
}

/** A login whose body lacks a byte. */
function unfinished(body: string): string {
  return post(JSON_TYPE, `${body}x`).slice(0, -1);
}

function fill(bytes: number, text = 'x'): string {
  return text.repeat(Math.floor(bytes / text.length));
}

/** Writes once, then nothing. */
function say(text: string): Act {
  const bytes = Buffer.from(text, 'latin1');
  return (socket) => socket.write(bytes);
}

/** Writes one piece after the other. */
function drip(start: string, piece: string, everyMs: number): Act {
  return (socket) => {
    socket.write(start);
    every(socket, everyMs, () => socket.writableLength === 0 && socket.write(piece));
  };
}

const chunked = (path: string) =>
  get(path, `Content-Type: ${JSON_TYPE}\r\nTransfer-Encoding: chunked\r\n`, 'POST');
const ONE_BYTE_CHUNKS = fill(60_000, '1\r\nx\r\n');
const HALF_HEAD = 'GET / HTTP/1.1\r\nHost: loc';
const FEW_BYTES = Array.from({ length: 98 }, (_, i) => `x${i}:\r\n`).join('');
const MANY_FIELDS = Array.from({ length: 98 }, (_, i) => `x${i}: ${fill(120)}\r\n`).join('');

const list = (count: number, item: (i: number) => string) =>
  Array.from({ length: count }, (_, i) => item(i));
/** A valid login of 12 kB with as many parameters as are allowed. */
const VALID_FORM = `id=admin&pw=correct+horse${list(198, (i) => `&${fill(55, 'k')}${i}=v`).join('')}`;
/** As many segments as are allowed, each index as sparse as possible. */
const NESTED_FORM = list(15, (i) => `a${i}${fill(155, '[999]')}=`).join('&');

/** A token of 10 kB with the service's key, different each time, or a forged one. */
function token(secret: string, number: number): string {
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const iat = Math.floor(Date.now() / 1000);
  const claims = { id: 'admin', name: 'Administrator', iat, exp: iat + 3600, jti: number };
  const text = `${encode({ alg: 'HS256', typ: 'JWT' })}.${encode({ ...claims, text: fill(7000) })}`;
  return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
}

let sent = 0;
const namingPipeline: Act = (socket) => {
  const fields = () => list(98, () => `x${sent++}-${fill(145)}:\r\n`).join('');
  socket.write(list(33, () => get('/openapi.json', fields())).join(''));
};

function newUser(): string {
  const email = `${process.pid}-${sent++}@example.com`;
  const user = { name: 'new', email, extra: fill(15_000) };
  return post(JSON_TYPE, JSON.stringify(user), '', '/users');
}

/** A failed login of the next /64 of one /48. Each gets as many turns as lock it. */
function failedLogin(): string {
  const from = `2001:db8:1:${(Math.floor(sent++ / FAILURES) % 65_536).toString(16)}::1`;
  return post(JSON_TYPE, '{"id":"admin","pw":"wrong"}', `X-Forwarded-For: ${from}\r\n`);
}

// The first bytes of a ClientHello, and one of 128 KiB that lacks its end, in records of 16 KiB.
const HALF_HELLO = '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03';
const RECORD = '\x16\x03\x01\x40\x00';
const LONG_HELLO = `${RECORD}\x01\x01\xff\xf0\x03\x03${fill(16_378, '\0')}${(RECORD + fill(16_384, '\0')).repeat(6)}`;

export const ATTACKS: readonly Attack[] = [
  // Connections.
  ...[-2, 0, 2].map((more) =>
    holds(`idle connections, slowly up to the maximum plus ${more}`, { addresses: 1000 }, (a) => {
      a.hold(a.slots + more - 8, say(get('/')), { isOnce: true });
      a.hold(8, say(get('/')), { isOnce: true, perSecond: 4 });
    }),
  ),
  holds('three addresses: idle, then 20 a second that wait 100 ms', { addresses: 3 }, (a) => {
    const wait: Act = (socket) => setTimeout(() => socket.write(get('/')), 100);
    a.hold(a.slots, say(get('/')), { isOnce: true });
    a.hold(a.slots, wait, { isOnce: true, perSecond: 20 });
  }),
  holds('half heads of more networks than slots, replaced at once', { addresses: 2000 }, (a) =>
    a.hold(a.slots + 50, say(HALF_HEAD)),
  ),
  holds('unfinished heads of 12 kB with 98 fields', { addresses: 250 }, (a) =>
    a.hold(a.slots, say(get('/', MANY_FIELDS).slice(0, -2))),
  ),
  holds('refused connections that the client keeps half-open', { addresses: 500 }, (a) =>
    a.hold(2 * a.slots, say('no request\r\n\r\n'), { isHalfOpen: true, lifeMs: 2_100 }),
  ),
  holds('1,000 replaced a second, a slow store', { addresses: 400, ...SLOW }, (a) =>
    a.hold(a.slots, say(get('/users/1')), { perSecond: 1000, lifeMs: 500 }),
  ),
  ...[100, 500].map((ms) =>
    holds(`a request every ${ms} ms resets the age`, { addresses: 1000 }, (a) =>
      a.hold(a.slots, drip(get('/'), get('/'), ms)),
    ),
  ),
  // Bodies.
  holds('bodies of 16 kB that lack a byte', { addresses: 100 }, (a) =>
    a.hold(900, say(unfinished(fill(BODY_BYTES)))),
  ),
  computes('bodies in chunks of one byte', { addresses: 50 }, (a) =>
    a.hold(200, drip(chunked('/token'), ONE_BYTE_CHUNKS, 1_000)),
  ),
  computes('bodies in chunks of one byte that no route reads', { addresses: 50 }, (a) => {
    const refused = chunked('/none');
    a.hold(100, say(`${refused}0\r\n\r\n${refused}${ONE_BYTE_CHUNKS}`), UNREAD);
    a.hold(100, say(`${get('/')}${chunked('/token')}${ONE_BYTE_CHUNKS}`), UNREAD);
  }),
  holds('heads of 15 kB with unfinished trailers of 15 kB', { addresses: 250 }, (a) => {
    const field = `X: ${fill(HEAD_BYTES)}`;
    a.hold(a.slots, say(`${chunked('/token').slice(0, -2)}${field}\r\n\r\n0\r\n${field}`));
  }),
  // Responses.
  holds('pipelines with new field names, whose responses nobody reads', { addresses: 200 }, (a) =>
    a.hold(400, namingPipeline, UNREAD),
  ),
  holds('the same, and lists of the longest names', { addresses: 200, users: 20_000 }, (a) => {
    const read: Act = (socket, i) => socket.write(get(`/users?limit=499&after=${i % 19_000}`));
    a.hold(150, read, UNREAD);
    a.hold(150, namingPipeline, UNREAD);
  }),
  // What a connection holds is freed in the turn of the event loop in which it is closed.
  computes('pipelines of 1,500 requests, all in one turn', { addresses: 50 }, (a) =>
    a.together(200, get('/').repeat(1500)),
  ),
  holds('pipelines of 33 with 98 fields, all in one turn', { addresses: 50, ...FROZEN }, (a) =>
    a.together(Math.floor(0.9 * a.slots), get('/users/1', FEW_BYTES).repeat(33)),
  ),
  holds('pipelines of 1,000 requests that end with FIN', { addresses: 50 }, (a) =>
    a.hold(100, (socket) => socket.end(get('/').repeat(1000)), { ...UNREAD, isHalfOpen: true }),
  ),
  holds('/metrics that nobody reads', { addresses: 50, transport: 'plain' }, (a) =>
    a.hold(500, say(get('/metrics').repeat(500)), { ...UNREAD, isAdmin: true }),
  ),
  holds('lists of all users, read slowly', { addresses: 100, users: 20_000 }, (a) => {
    const act: Act = (socket) => {
      socket.write(get('/users'));
      every(socket, 500, () => socket.read());
    };
    a.hold(1_000, act, { isUnread: true });
  }),
  // The store.
  holds('pages of users whose clients reset', { addresses: 100, users: 20_000 }, (a) => {
    const reset = (socket: Socket) =>
      a.target.isTls ? socket.destroy() : socket.resetAndDestroy();
    a.hold(300, (socket, i) => {
      socket.write(get(`/users?limit=499&after=${i % 19_000}`, `X: ${fill(HEAD_BYTES)}\r\n`));
      setTimeout(reset, 30, socket);
    });
  }),
  holds('new users, a frozen store', { addresses: 500, store: 'postgres', delay: 'frozen' }, (a) =>
    a.hold(5_000, (socket) => socket.write(newUser())),
  ),
  computes('a flood of new users', { addresses: 100, users: 1 }, (a) => a.flood(200, newUser, 200)),
  // TLS.
  holds('endless updates of keys', { addresses: 2, transport: 'tls' }, (a) =>
    a.records(2, (records) => records.keyUpdates(2_000), 5),
  ),
  holds('half a ClientHello, or one of 128 KiB', { addresses: 250, transport: 'tls' }, (a) => {
    a.hold(a.slots, say(HALF_HELLO), { isRaw: true });
    a.hold(a.slots, say(LONG_HELLO), { isRaw: true });
  }),
  computes('handshakes that end once they are done', { addresses: 100, transport: 'tls' }, (a) =>
    a.hold(100, (socket) => socket.destroy()),
  ),
  // CPU.
  ...[64, 256, 900].map((addresses) =>
    computes(`${addresses} networks repeat a valid form of 12 kB`, { addresses }, (a) =>
      a.repeat(Buffer.from(post(FORM_TYPE, VALID_FORM))),
    ),
  ),
  ...Object.entries({
    'forms that nest indices of 999': post(FORM_TYPE, NESTED_FORM),
    'JSON that only nests': post(JSON_TYPE, fill(BODY_BYTES / 2, '[') + fill(BODY_BYTES / 2, ']')),
    'queries of 15 kB': get(`/users?${fill(5000, '%41=%42&')}email=${fill(9000, '%61')}`),
  }).map(([what, request]) =>
    computes(`a flood of ${what}`, { addresses: 50 }, (a) => a.flood(250, () => request, 100)),
  ),
  computes('forged and valid tokens of 10 kB', { addresses: 50 }, (a) => {
    const bearer = (text: string) => get('/notes', `Authorization: Bearer ${text}\r\n`);
    const forged = () => bearer(token(randomBytes(32).toString('hex'), 0));
    a.flood(25, () => forged().repeat(10), 100);
    a.flood(25, () => bearer(token(a.target.secret, sent++)), 20);
  }),
  computes(
    'failed logins of the /64s of one /48',
    { addresses: 20, settings: { TRUST_PROXY: '1', AUTH_FAILURES_PER_MINUTE: `${FAILURES}` } },
    (a) => a.flood(20, () => list(30, failedLogin).join(''), 100),
  ),
  computes('requests whose log nobody reads', { addresses: 20, leavesLogUnread: true }, (a) =>
    a.flood(20, () => get(`/${fill(100)}`, `X-Request-Id: ${fill(128)}\r\n`).repeat(20), 20),
  ),
  holds('requests that wait for the store do not age', { addresses: 1000, ...SLOW }, (a) =>
    a.hold(a.slots, drip(get('/users/1'), get('/users/1'), 100)),
  ),
  holds('pipelines of 32 that wait for the store', { addresses: 250, ...SLOW }, (a) =>
    a.hold(a.slots, say(get('/users?limit=1000').repeat(32)), UNREAD),
  ),
  holds('bodies that grow until they are evicted, and come again', { addresses: 1000 }, (a) =>
    a.hold(a.slots, drip(chunked('/token'), `400\r\n${fill(1024)}\r\n`, 100)),
  ),
  holds('connections that change between all states', { addresses: 1000 }, (a) => {
    const last = [unfinished('{'), get('/docs').repeat(32), 'no\r\n\r\n'];
    const states = [get('/'), HALF_HEAD, ...last];
    a.hold(a.slots, (socket, i) => socket.write(states[i % states.length]!), { lifeMs: 700 });
  }),
  computes('updates of keys and empty lines', { addresses: 4, transport: 'tls' }, (a) => {
    const blank = Buffer.from('\r\n'); // before a request, as RFC 9112 §2.2 allows
    a.records(4, (records) => Buffer.concat([records.keyUpdates(1_000), records.seal(blank)]), 5);
  }),
];
