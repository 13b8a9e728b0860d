// Rules 3.5 to 3.8 of the contract: the note and its bearer token. Each attack on the token is a
// row of a table. The test signs the tokens itself.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { type HttpResponse, raw, send } from '../support/client.ts';
import { PASSWORD, type Program, SECRET, start, USER } from '../support/program.ts';

const TEXT = 'text/plain; charset=utf-8';
const PLAIN_CHALLENGE = 'Bearer realm="notes"';
const TOKEN_CHALLENGE = 'Bearer realm="notes", error="invalid_token"';
const NOTE = { NOTE_TITLE: 'Shopping "list"', NOTE_CONTENTS: 'Milk\nand <eggs> 🥚' };
const HEADER = '{"alg":"HS256","typ":"JWT"}';
const PREVIOUS = 'the secret that was in use before today';

describe('3.5 to 3.8 notes', () => {
  let program: Program;
  before(async () => {
    program = await start({ ...NOTE });
  });
  after(() => program?.[Symbol.asyncDispose]());

  test('3.5 GET /notes with the token of POST /token returns 200 and the note', async () => {
    const authorization = `Bearer ${await newToken(program)}`;
    const response = await send(`${program.url}/notes`, { headers: { authorization } });
    assert.deepEqual(summary(response), {
      status: 200,
      type: 'application/json',
      challenge: null,
      body: JSON.stringify({ title: NOTE.NOTE_TITLE, contents: NOTE.NOTE_CONTENTS }),
    });
  });

  for (const scheme of ['Bearer', 'bearer', 'BEARER', 'bEaReR']) {
    test(`3.6 the scheme's name in the case ${scheme} is accepted`, async () => {
      const headers = { authorization: `${scheme} ${sign(claims())}` };
      const response = await send(`${program.url}/notes`, { headers });
      assert.equal(response.status, 200);
    });
  }

  for (const { why, lines } of [
    { why: 'no header', lines: () => [] },
    { why: 'an empty header', lines: () => ['Authorization:'] },
    { why: 'the scheme alone', lines: () => ['Authorization: Bearer'] },
    { why: 'the token alone', lines: () => [`Authorization: ${sign(claims())}`] },
    { why: 'two spaces', lines: () => [`Authorization: Bearer  ${sign(claims())}`] },
    { why: 'a tab for the space', lines: () => [`Authorization: Bearer\t${sign(claims())}`] },
    { why: 'a third part', lines: () => [`Authorization: Bearer ${sign(claims())} x`] },
    { why: 'the token split by a space', lines: () => ['Authorization: Bearer a.b .c'] },
    { why: 'a comma for the space', lines: () => [`Authorization: Bearer,${sign(claims())}`] },
    { why: 'another scheme', lines: () => [`Authorization: Token ${sign(claims())}`] },
    { why: 'a longer scheme', lines: () => [`Authorization: Bearers ${sign(claims())}`] },
    {
      why: 'the right Basic pair',
      lines: () => ['Authorization: Basic YWRtaW46Y29ycmVjdCBob3JzZQ=='],
    },
    {
      why: 'two right headers',
      lines: () => Array(2).fill(`Authorization: Bearer ${sign(claims())}`),
    },
    {
      why: 'a right header and a wrong one',
      lines: () => [`Authorization: Bearer ${sign(claims())}`, 'Authorization: Bearer x'],
    },
    {
      why: 'two headers in different case',
      lines: () => [`Authorization: Bearer ${sign(claims())}`, 'authorization: Basic YTpi'],
    },
    {
      why: 'Proxy-Authorization',
      lines: () => [`Proxy-Authorization: Bearer ${sign(claims())}`],
    },
  ]) {
    test(`3.6 3.8 GET /notes with ${why} returns 401 without error`, async () => {
      const response = await rawNotes(program, lines());
      assert.deepEqual(response, {
        status: 401,
        challenge: PLAIN_CHALLENGE,
        body: 'Unauthorized',
      });
    });
  }

  test('3.6 a token in the query is not read', async () => {
    const response = await send(`${program.url}/notes?access_token=${sign(claims())}`);
    assert.deepEqual(summary(response), {
      status: 401,
      type: TEXT,
      challenge: PLAIN_CHALLENGE,
      body: 'Unauthorized',
    });
  });

  for (const { why, token } of accepted()) {
    test(`3.7 a token with ${why} is accepted`, async () => {
      const headers = { authorization: `Bearer ${token()}` };
      const response = await send(`${program.url}/notes`, { headers });
      assert.equal(response.status, 200, response.body);
    });
  }

  for (const { why, token } of attacks()) {
    test(`3.7 3.8 a token with ${why} is refused`, async () => {
      const headers = { authorization: `Bearer ${token()}` };
      const response = await send(`${program.url}/notes`, { headers });
      assert.deepEqual(summary(response), {
        status: 401,
        type: TEXT,
        challenge: TOKEN_CHALLENGE,
        body: 'Unauthorized',
      });
    });
  }

  for (const { why, token } of padded()) {
    test(`3.7 3.8 a token with ${why} is refused without error`, async () => {
      const headers = { authorization: `Bearer ${token()}` };
      const response = await send(`${program.url}/notes`, { headers });
      assert.deepEqual(summary(response), {
        status: 401,
        type: TEXT,
        challenge: PLAIN_CHALLENGE,
        body: 'Unauthorized',
      });
    });
  }

  for (const { why, change } of [
    { why: 'id missing', change: { id: undefined } },
    { why: 'id of another user', change: { id: 'root' } },
    { why: 'id in another case', change: { id: 'Admin' } },
    { why: 'id with a space after it', change: { id: `${USER} ` } },
    { why: 'id empty', change: { id: '' } },
    { why: 'id null', change: { id: null } },
    { why: 'id a number', change: { id: 1 } },
    { why: 'id a list of the right one', change: { id: [USER] } },
    { why: 'id an object', change: { id: {} } },
    { why: 'name missing', change: { name: undefined } },
    { why: 'name of another user', change: { name: 'Root' } },
    { why: 'name in another case', change: { name: 'administrator' } },
    { why: 'name empty', change: { name: '' } },
    { why: 'name null', change: { name: null } },
    { why: 'name a list of the right one', change: { name: ['Administrator'] } },
    { why: 'both exchanged', change: { id: 'Administrator', name: USER } },
  ]) {
    test(`3.7 a token with claim ${why} is refused`, async () => {
      const headers = { authorization: `Bearer ${sign({ ...claims(), ...change })}` };
      const response = await send(`${program.url}/notes`, { headers });
      assert.deepEqual(summary(response), {
        status: 401,
        type: TEXT,
        challenge: TOKEN_CHALLENGE,
        body: 'Unauthorized',
      });
    });
  }

  test('3.7 a token is accepted until exp and refused from exp on', async () => {
    const exp = Math.floor(Date.now() / 1000) + 2;
    const headers = { authorization: `Bearer ${sign({ ...claims(), exp })}` };
    const early: number[] = [];
    const late: number[] = [];
    while (late.length === 0) {
      const before = Date.now();
      const { status } = await send(`${program.url}/notes`, { headers });
      if (Date.now() < exp * 1000) early.push(status);
      if (before >= exp * 1000) late.push(status);
    }
    assert.deepEqual([[...new Set(early)], late], [[200], [401]]);
  });

  for (const length of [0, 1, 31, 33, 64, 8000]) {
    test(`3.12 a signature of ${length} bytes is refused like any other`, async () => {
      const [header, payload] = sign(claims()).split('.');
      const signature = Buffer.alloc(length, 1).toString('base64url');
      const headers = { authorization: `Bearer ${header}.${payload}.${signature}` };
      const response = await send(`${program.url}/notes`, { headers });
      assert.deepEqual([response.status, response.body], [401, 'Unauthorized']);
    });
  }
});

describe('3.5 the default note', () => {
  test('3.5 the note without NOTE_TITLE and NOTE_CONTENTS is a welcome', async () => {
    await using program = await start();
    const headers = { authorization: `Bearer ${sign(claims())}` };
    const response = await send(`${program.url}/notes`, { headers });
    const note = JSON.parse(response.body);
    assert.deepEqual(Object.keys(note), ['title', 'contents']);
    assert.match(note.title, /\S/);
    assert.match(note.contents, /\S/);
  });
});

describe('3.7 rotation of the secret', () => {
  let program: Program;
  before(async () => {
    program = await start({ SIGNING_SECRET_PREVIOUS: PREVIOUS });
  });
  after(() => program?.[Symbol.asyncDispose]());

  for (const { why, secret, status } of [
    { why: 'SIGNING_SECRET', secret: SECRET, status: 200 },
    { why: 'SIGNING_SECRET_PREVIOUS', secret: PREVIOUS, status: 200 },
    { why: 'any other secret', secret: `${PREVIOUS}!`, status: 401 },
    { why: 'an empty secret', secret: '', status: 401 },
  ]) {
    test(`3.7 a token signed with ${why} returns ${status}`, async () => {
      const headers = { authorization: `Bearer ${sign(claims(), { secret })}` };
      const response = await send(`${program.url}/notes`, { headers });
      assert.equal(response.status, status);
    });
  }

  test('3.7 SIGNING_SECRET_PREVIOUS never signs', async () => {
    const token = await newToken(program);
    const [header, payload, signature] = token.split('.');
    assert.equal(signature, hmac(SECRET, `${header}.${payload}`));
    assert.notEqual(signature, hmac(PREVIOUS, `${header}.${payload}`));
  });

  test('3.7 an expired token of the previous secret is refused', async () => {
    const token = sign({ ...claims(), exp: now() - 1 }, { secret: PREVIOUS });
    const headers = { authorization: `Bearer ${token}` };
    const response = await send(`${program.url}/notes`, { headers });
    assert.equal(response.headers.get('www-authenticate'), TOKEN_CHALLENGE);
    assert.equal(response.status, 401);
  });

  test('3.7 without SIGNING_SECRET_PREVIOUS its tokens are refused', async () => {
    await using other = await start();
    const headers = { authorization: `Bearer ${sign(claims(), { secret: PREVIOUS })}` };
    const response = await send(`${other.url}/notes`, { headers });
    assert.equal(response.status, 401);
  });
});

interface TokenCase {
  readonly why: string;
  readonly token: () => string;
}

function accepted(): TokenCase[] {
  const header = (more: object) => ({ header: JSON.stringify({ alg: 'HS256', ...more }) });
  return [
    { why: 'only the claims that count', token: () => sign({ ...claims(), iat: undefined }) },
    { why: 'no typ', token: () => sign(claims(), header({})) },
    { why: 'typ of another kind', token: () => sign(claims(), header({ typ: 'at+jwt' })) },
    { why: 'typ that is not a string', token: () => sign(claims(), header({ typ: 1 })) },
    { why: 'kid', token: () => sign(claims(), header({ kid: '../../etc/passwd' })) },
    { why: 'jku', token: () => sign(claims(), header({ jku: 'https://evil.example/keys' })) },
    { why: 'jwk', token: () => sign(claims(), header({ jwk: { kty: 'oct', k: 'AAAA' } })) },
    { why: 'x5c', token: () => sign(claims(), header({ x5c: ['AAAA'] })) },
    {
      why: 'a header of other order and spacing',
      token: () => sign(claims(), { header: '{ "typ":"JWT",\n"alg":"HS256" }' }),
    },
    { why: 'iat in the future', token: () => sign({ ...claims(), iat: now() + 9999 }) },
    { why: 'iat that is not a number', token: () => sign({ ...claims(), iat: 'yesterday' }) },
    { why: 'aud', token: () => sign({ ...claims(), aud: 'someone else' }) },
    { why: 'nbf in the past', token: () => sign({ ...claims(), nbf: now() - 1 }) },
    { why: 'nbf now', token: () => sign({ ...claims(), nbf: now() }) },
    { why: 'nbf 0', token: () => sign({ ...claims(), nbf: 0 }) },
    { why: 'nbf a fraction in the past', token: () => sign({ ...claims(), nbf: now() - 0.5 }) },
    { why: 'exp a fraction in the future', token: () => sign({ ...claims(), exp: now() + 60.5 }) },
    { why: 'exp very far in the future', token: () => sign({ ...claims(), exp: 1e300 }) },
  ];
}

function attacks(): TokenCase[] {
  const good = () => sign(claims());
  const cut = () => good().split('.') as [string, string, string];
  const alg = (name: unknown, hash = 'sha256') => ({
    why: `alg ${JSON.stringify(name)}, signed with ${hash}`,
    token: () => sign(claims(), { header: JSON.stringify({ alg: name, typ: 'JWT' }), hash }),
  });
  const none = (name: string, signature: string) => ({
    why: `alg ${name} and the signature "${signature}"`,
    token: () =>
      `${part(JSON.stringify({ alg: name }))}.${part(JSON.stringify(claims()))}.${signature}`,
  });
  const payload = (why: string, content: string | Uint8Array) => ({
    why: `a payload of ${why}`,
    token: () => signText(`${part(HEADER)}.${part(content)}`),
  });
  const header = (why: string, content: string | Uint8Array) => ({
    why: `a header of ${why}`,
    token: () => signText(`${part(content)}.${part(JSON.stringify(claims()))}`),
  });
  const member = (why: string, more: object) => ({
    why,
    token: () => sign(claims(), { header: JSON.stringify({ alg: 'HS256', ...more }) }),
  });
  const claim = (why: string, change: () => object) => ({
    why,
    token: () => sign({ ...claims(), ...change() }),
  });
  const text = (why: string, json: () => string) => ({
    why,
    token: () => signText(`${part(HEADER)}.${part(json())}`),
  });
  return [
    // RFC 8725 2.1 and 3.1: the service chooses the algorithm, never the token.
    ...['none', 'None', 'NONE', 'nOnE', 'nonE', 'none ', ''].map((name) => none(name, '')),
    none('none', 'AA'),
    ...[
      'none',
      'None',
      'NONE',
      'hs256',
      'Hs256',
      'HS256 ',
      'HS1',
      '',
      'RS256',
      'ES256',
      'PS256',
      'EdDSA',
      'dir',
    ].map((name) => alg(name)),
    alg('HS384', 'sha384'),
    alg('HS512', 'sha512'),
    alg('HS256', 'sha512'),
    alg(['HS256']),
    alg({ HS256: true }),
    alg(null),
    alg(256),
    alg(true),
    { why: 'no alg', token: () => sign(claims(), { header: '{"typ":"JWT"}' }) },
    {
      why: 'alg under __proto__',
      token: () => sign(claims(), { header: '{"__proto__":{"alg":"HS256"}}' }),
    },
    // RFC 7515 4.1.11: a critical parameter that we don't understand is refused.
    member('crit of nothing', { crit: [] }),
    member('crit of exp', { crit: ['exp'], exp: 1 }),
    member('crit of b64', { crit: ['b64'], b64: true }),
    member('crit null', { crit: null }),
    member('crit that is no array', { crit: 'exp' }),
    header('an array', '[{"alg":"HS256"}]'),
    header('null', 'null'),
    header('a string', '"HS256"'),
    header('text that is no JSON', 'alg: HS256'),
    header('nothing', ''),
    header('cut JSON', '{"alg":"HS256"'),
    header('invalid UTF-8', bytes('{"alg":"HS256","x":"', 0xff, '"}')),
    payload('an array', '[]'),
    payload('an array of the claims', JSON.stringify([claims()])),
    payload('null', 'null'),
    payload('a string', '"admin"'),
    payload('a number', '1'),
    payload('nothing', ''),
    payload('text that is no JSON', 'id=admin'),
    payload('cut JSON', JSON.stringify(claims()).slice(0, -1)),
    payload('two JSON values', `${JSON.stringify(claims())}{}`),
    payload(
      'invalid UTF-8',
      bytes(JSON.stringify(claims()).slice(0, -1), ',"x":"', 0xc0, 0xaf, '"}'),
    ),
    payload('UTF-16', Buffer.from(JSON.stringify(claims()), 'utf16le')),
    {
      why: 'the claims under __proto__',
      token: () => signText(`${part(HEADER)}.${part(`{"__proto__":${JSON.stringify(claims())}}`)}`),
    },
    // RFC 7519 4.1.4, RFC 7519 4.1.5.
    claim('no exp', () => ({ exp: undefined })),
    claim('exp null', () => ({ exp: null })),
    claim('exp a string', () => ({ exp: String(now() + 60) })),
    claim('exp a list', () => ({ exp: [now() + 60] })),
    claim('exp true', () => ({ exp: true })),
    claim('exp 0', () => ({ exp: 0 })),
    claim('exp negative', () => ({ exp: -now() - 60 })),
    claim('exp an hour ago', () => ({ exp: now() - 3600 })),
    claim('exp a second ago', () => ({ exp: now() - 1 })),
    claim('exp now', () => ({ exp: now() })),
    claim('exp a fraction of a second ago', () => ({ exp: Date.now() / 1000 - 0.1 })),
    text(
      'exp beyond every number',
      () => `${JSON.stringify({ ...claims(), exp: undefined }).slice(0, -1)},"exp":1e400}`,
    ),
    text(
      'exp beyond every number, negative',
      () => `${JSON.stringify({ ...claims(), exp: undefined }).slice(0, -1)},"exp":-1e400}`,
    ),
    claim('nbf in a minute', () => ({ nbf: now() + 60 })),
    claim('nbf in a fraction of a minute', () => ({ nbf: now() + 30.5 })),
    claim('nbf a string', () => ({ nbf: String(now() - 60) })),
    claim('nbf null', () => ({ nbf: null })),
    claim('nbf true', () => ({ nbf: true })),
    text('nbf beyond every number', () => `${JSON.stringify(claims()).slice(0, -1)},"nbf":1e400}`),
    // RFC 7515 5.2: only exactly this signature is valid.
    { why: 'a signature of another secret', token: () => sign(claims(), { secret: `${SECRET}!` }) },
    { why: 'a signature of the empty secret', token: () => sign(claims(), { secret: '' }) },
    {
      why: 'a signature of only the header',
      token: () => `${cut()[0]}.${cut()[1]}.${hmac(SECRET, cut()[0])}`,
    },
    {
      why: 'a signature of only the payload',
      token: () => `${cut()[0]}.${cut()[1]}.${hmac(SECRET, cut()[1])}`,
    },
    { why: 'the first bit of the signature changed', token: () => flip(0, 0x80) },
    { why: 'the last bit of the signature changed', token: () => flip(31, 0x01) },
    {
      why: 'the payload changed',
      token: () =>
        `${cut()[0]}.${part(JSON.stringify({ ...claims(), exp: now() + 1e6 }))}.${cut()[2]}`,
    },
    {
      why: 'the signature a byte short',
      token: () => resigned((signature) => signature.subarray(0, 31)),
    },
    {
      why: 'the signature a byte long',
      token: () => resigned((signature) => Buffer.concat([signature, Buffer.from([0])])),
    },
    {
      why: 'the signature twice',
      token: () => resigned((signature) => Buffer.concat([signature, signature])),
    },
    {
      why: 'the signature in hex',
      token: () => `${cut()[0]}.${cut()[1]}.${Buffer.from(cut()[2], 'base64url').toString('hex')}`,
    },
    {
      why: 'the signature cut to its first character',
      token: () => `${cut()[0]}.${cut()[1]}.${cut()[2].slice(0, 1)}`,
    },
    { why: 'no signature', token: () => `${cut()[0]}.${cut()[1]}.` },
    // RFC 7515 3.1: three parts.
    { why: 'one part', token: () => 'nonsense' },
    { why: 'two parts', token: () => `${cut()[0]}.${cut()[1]}` },
    { why: 'four parts', token: () => `${good()}.${cut()[2]}` },
    { why: 'an empty fourth part', token: () => `${good()}.` },
    { why: 'an empty part before it', token: () => `.${good()}` },
    { why: 'five parts, like a JWE', token: () => `${cut()[0]}....${cut()[2]}` },
    { why: 'an empty header', token: () => signText(`.${cut()[1]}`) },
    { why: 'an empty payload', token: () => signText(`${cut()[0]}.`) },
    { why: 'empty parts', token: () => '..' },
    { why: 'a dot', token: () => '.' },
    // RFC 7515 2, RFC 4648 3.5: base64url has one spelling.
    { why: 'padding after the signature', token: () => `${good()}=` },
    { why: 'loose last bits in the signature', token: () => loosen(good()) },
    {
      why: 'loose last bits in the header, rightly signed',
      token: () => signText(`${loosen(part('{"alg":"HS256","typ":"JW"}'))}.${cut()[1]}`),
    },
    {
      why: 'loose last bits in the payload, rightly signed',
      token: () => signText(`${cut()[0]}.${loosen(loosePayload())}`),
    },
    {
      why: 'the alphabet of base64 in the payload, rightly signed',
      token: () =>
        signText(
          `${cut()[0]}.${Buffer.from(JSON.stringify({ ...claims(), x: '??????' }))
            .toString('base64')
            .replace(/=+$/, '')}`,
        ),
    },
    {
      why: 'a part of impossible length, rightly signed',
      token: () => signText(`${cut()[0]}.${tight()}A`),
    },
    {
      why: 'a character outside the alphabet in the header, rightly signed',
      token: () => signText(`${cut()[0]}+.${cut()[1]}`),
    },
    {
      why: 'a character outside the alphabet in the payload, rightly signed',
      token: () => signText(`${cut()[0]}.${cut()[1]}~`),
    },
    { why: 'a character outside the alphabet in the signature', token: () => `${good()}~` },
  ];
}

// A token with equals signs before its end is not a token68 (RFC 9110 11.2), so it is malformed.
function padded(): TokenCase[] {
  const [header, payload] = sign(claims()).split('.');
  return [
    {
      why: 'padding after the header',
      token: () => signText(`${part('{"alg":"HS256","typ":"JW"}')}=.${payload}`),
    },
    {
      why: 'padding after the payload',
      token: () =>
        signText(`${header}.${loosePayload()}${'='.repeat((4 - (loosePayload().length % 4)) % 4)}`),
    },
  ];
}

interface SignOptions {
  readonly header?: string;
  readonly secret?: string;
  readonly hash?: string;
}

function sign(payload: object, { header = HEADER, secret, hash }: SignOptions = {}): string {
  return signText(`${part(header)}.${part(JSON.stringify(payload))}`, secret, hash);
}

function signText(input: string, secret: string = SECRET, hash = 'sha256'): string {
  return `${input}.${hmac(secret, input, hash)}`;
}

function hmac(secret: string, input: string, hash = 'sha256'): string {
  return createHmac(hash, secret).update(input).digest('base64url');
}

function claims() {
  return { id: USER, name: 'Administrator', iat: now(), exp: now() + 60 };
}

function now(): number {
  return Math.floor(Date.now() / 1000);
}

function part(content: string | Uint8Array): string {
  return Buffer.from(content as string).toString('base64url');
}

function bytes(...parts: (string | number)[]): Uint8Array {
  return Buffer.concat(
    parts.map((item) => (typeof item === 'string' ? Buffer.from(item) : Buffer.from([item]))),
  );
}

function resigned(change: (signature: Buffer) => Uint8Array): string {
  const [header, payload, signature = ''] = sign(claims()).split('.');
  return `${header}.${payload}.${part(change(Buffer.from(signature, 'base64url')))}`;
}

function flip(index: number, mask: number): string {
  return resigned((signature) => {
    signature[index] = signature[index]! ^ mask;
    return signature;
  });
}

// Returns base64url of a text whose last character has two or four unused bits.
function loosePayload(): string {
  const json = JSON.stringify(claims());
  return part(json.length % 3 === 0 ? ` ${json}` : json);
}

// Returns base64url of the claims without unused bits.
function tight(): string {
  const json = JSON.stringify(claims());
  return part(json.padStart(Math.ceil(json.length / 3) * 3));
}

// Sets the lowest bit of the last character. For a lenient decoder, the bytes are the same.
function loosen(encoded: string): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const last = alphabet.indexOf(encoded.at(-1) ?? '');
  return `${encoded.slice(0, -1)}${alphabet[last | 1]}`;
}

async function newToken(program: Program): Promise<string> {
  const body = { id: USER, pw: PASSWORD };
  const response = await send(`${program.url}/token`, { method: 'POST', body });
  return JSON.parse(response.body).token;
}

async function rawNotes(program: Program, lines: readonly string[]) {
  const head = ['GET /notes HTTP/1.1', 'Host: x', 'Connection: close', ...lines];
  const response = await raw(program.url, `${head.join('\r\n')}\r\n\r\n`);
  return {
    status: Number(response.slice(9, 12)),
    challenge: /^www-authenticate: (.*)$/im.exec(response)?.[1]?.trimEnd(),
    body: response.slice(response.indexOf('\r\n\r\n') + 4),
  };
}

function summary(response: HttpResponse) {
  return {
    status: response.status,
    type: response.headers.get('content-type'),
    challenge: response.headers.get('www-authenticate'),
    body: response.body,
  };
}
