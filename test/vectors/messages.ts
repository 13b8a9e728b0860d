// Heads of requests that are served, and input that reaches no route, each with the status of its refusal. Each
// message whose end two parsers could see in different places hides a request behind it.

export type Refused = readonly [bytes: string, status: number, why: string];

const get = (fields: string) => `GET / HTTP/1.1\r\nHost: x\r\n${fields}\r\n\r\n`;
const line = (text: string) => `${text}\r\nHost: x\r\n\r\n`;

const CLOSE = 'Connection: close';
const GET = `GET / HTTP/1.1\r\n${CLOSE}\r\n`;
const HOST = 'Host: x\r\n';
const many = (count: number) => 'a:\r\n'.repeat(count);
const sized = (bytes: number) => get(`${CLOSE}\r\nA: `.padEnd(bytes - get('').length, 'a'));

export const ACCEPTED: readonly (readonly [bytes: string, why: string])[] = [
  ...['x', '', 'a.example', 'a-1:80', 'a:', '[::1]', '[2001:db8::1]:8080', "~_!$&'()*+,;=%2F"].map(
    (host) => [`${GET}Host: ${host}\r\n\r\n`, `the Host ${host}`] as const,
  ),
  [`${GET}${HOST}Hose: y\r\nEast: x\r\n\r\n`, 'other fields of four letters'],
  ['GET / HTTP/1.0\r\n\r\n', 'HTTP/1.0 without Host'],
  ['GET / HTTP/1.0\r\nHost: x\r\n\r\n', 'HTTP/1.0 with Host'],
  [`${GET}${many(98)}${HOST}\r\n`, 'a Host after 98 other fields'],
  [sized(16_384), 'a head of 16 KiB'],
  [get('Expect: 100-continue'), 'an Expect without a body, without 100,'],
  [`${get(`${CLOSE}\r\nTransfer-Encoding: Chunked`)}0\r\n\r\n`, 'chunks, in capitals'],
];

const MALFORMED: readonly Refused[] = [
  ['nonsense\r\n\r\n', 400, 'no request line'],
  [get('A: b\r\n folded'), 400, 'a folded field'],
  [get('bad name: 1'), 400, 'a space in a field name'],
  [`${GET}\r\n`, 400, 'no Host'],
  ...['a b', 'x/y', 'x@y', '[::1', 'a:b', '%', 'x%2', 'x%zz', '[::1::]', '[1.2]'].map(
    (host): Refused => [`${GET}Host: ${host}\r\n\r\n`, 400, `the Host ${host}`],
  ),
  ...[`${HOST}Host: y\r\n`, 'Host: x/y\r\n', 'Host:\r\nhost: x\r\n'].map((fields): Refused => {
    const head = `GET / HTTP/1.0\r\nConnection: keep-alive\r\n${fields}\r\n`;
    return [head + head, 400, `HTTP/1.0 with ${JSON.stringify(fields)}`];
  }),
  [`${GET}${HOST}${many(97)}Host: y\r\n\r\n`, 400, 'a second Host as the 100th field'],
  [`${GET}${HOST}${many(99)}\r\n`, 431, '101 fields'],
  [line(`GET /${'a'.repeat(16_384)} HTTP/1.1`), 431, 'a path over 16 KiB'],
  [sized(16_385), 431, 'a head of 16 KiB and a byte'],
  [get(`A: ${`${'a'.repeat(405)}\r\nB: `.repeat(40)}`), 431, 'fields over 16 KiB with separators'],
  ...['0.9', '1.2', '2.0', '3', '10.0'].map(
    (version): Refused => [line(`GET / HTTP/${version}`), 505, `version ${version}`],
  ),
  ['GET / HTTP/1.1\nHost: x\n\n', 400, 'a line that ends without CR'],
  [line('GET / HTTP/1.1 '), 400, 'a space behind the version'],
  ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 505, 'the preface of HTTP/2'],
  ['\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 400, 'a TLS hello'],
  ['GET /\r\n\r\n', 505, 'a request line without a version'],
  [line('get / HTTP/1.1'), 400, 'a method in lower case'],
  [line('FOO / HTTP/1.1'), 400, 'a method that node does not know'],
  [line('GET /\xff HTTP/1.1'), 400, 'a target beyond ASCII'],
  [line('GET users HTTP/1.1'), 400, 'a target that is not a path'],
];

const HIDDEN = 'GET /secret HTTP/1.1\r\nHost: x\r\n\r\n';
const CHUNKED = 'Transfer-Encoding: chunked';
const post = (lines: string, body = `0\r\n\r\n${HIDDEN}`) =>
  `POST /token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n${lines}\r\n\r\n${body}`;

const SMUGGLED: readonly Refused[] = [
  ...[
    `Content-Length: 5\r\n${CHUNKED}`,
    'Content-Length: 0\r\nContent-Length: 5',
    'Content-Length: 5\r\nContent-Length: 5',
    ...['5, 5', '-1', '+5', '0x5', '5.0', '1 0', '', '99999999999999999999999'].map(
      (length) => `Content-Length: ${length}`,
    ),
    'Content-Length : 5',
    'Transfer-Encoding\t: chunked',
    'X-Folded: a\r\n b\r\nContent-Length: 5',
    'X-Null: a\0b\r\nContent-Length: 0',
    'nonsense\r\nContent-Length: 0',
    'X-Cr: a\rb\r\nContent-Length: 0',
    'X-Lf: a\nContent-Length: 5',
    `${CHUNKED}, identity`,
    'Transfer-Encoding: gzip, chunked',
    'Transfer-Encoding: xchunked',
    `${CHUNKED}\r\nTransfer-Encoding: identity`,
  ].map((lines): Refused => [post(lines), 400, JSON.stringify(lines)]),
  ...[
    'x\r\n\r\n',
    '\r\n\r\n',
    '0x2\r\n{}\r\n0\r\n\r\n',
    'fffffffffffffffff\r\n{}\r\n0\r\n\r\n',
    '1\r\n{}\r\n0\r\n\r\n',
    '2\r\n{}0\r\n\r\n',
    '2\n{}\r\n0\r\n\r\n',
  ].map((chunks): Refused => {
    return [post(CHUNKED, chunks + HIDDEN), 400, `the chunks ${JSON.stringify(chunks)}`];
  }),
  [post(CHUNKED, `1;${'x'.repeat(20_000)}\r\n`), 413, 'a chunk extension over 16 KiB'],
  [post('Content-Length: 9007199254740992'), 413, 'a Content-Length of 2^53'],
  [post(CHUNKED).replace('HTTP/1.1', 'HTTP/1.0'), 400, 'chunks in HTTP/1.0'],
];

export const REFUSED: readonly Refused[] = [...MALFORMED, ...SMUGGLED];
