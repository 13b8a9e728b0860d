// Rules 3.5 to 3.8 of the contract: the note and its bearer token. Each attack on the token is a
// row of vectors/tokens.ts; test/auth/jwt.test.ts tries all of them.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type HttpResponse, raw, send } from '../support/client.ts';
import { PASSWORD, type Program, SECRET, start, USER } from '../support/program.ts';
import {
  claimsAt,
  HEADER,
  paddedTokens,
  refusedTokens,
  signed,
  signedText,
  validTokens,
} from '../vectors/tokens.ts';

const TEXT = 'text/plain; charset=utf-8';
const PLAIN_CHALLENGE = 'Bearer realm="notes"';
const TOKEN_CHALLENGE = 'Bearer realm="notes", error="invalid_token"';
const NOTE = { NOTE_TITLE: 'Shopping "list"', NOTE_CONTENTS: 'Milk\nand <eggs> 🥚' };
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

  test('2.4, 3.6 a header with the value "authorization" or "host" is no second one', async () => {
    const lines = [
      'X-One: authorization',
      'X-Two: host',
      `Authorization: Bearer ${sign(claims())}`,
    ];
    assert.equal((await rawNotes(program, lines)).status, 200);
  });

  test('3.6 a token in the query is not read', async () => {
    const response = await send(`${program.url}/notes?access_token=${sign(claims())}`);
    assert.deepEqual(summary(response), {
      status: 401,
      type: TEXT,
      challenge: PLAIN_CHALLENGE,
      body: 'Unauthorized',
    });
  });

  test('3.7 a token with only the claims that count is accepted', async () => {
    assert.equal((await withToken(validTokens(now())['only the claims that count']!)).status, 200);
  });

  for (const [fault, tokens] of Object.entries(refusedTokens(now()))) {
    const [why, token] = Object.entries(tokens)[0]!;
    test(`3.7 3.8 a token with ${fault} (${why}) is refused`, async () => {
      assert.deepEqual(summary(await withToken(token)), {
        status: 401,
        type: TEXT,
        challenge: TOKEN_CHALLENGE,
        body: 'Unauthorized',
      });
    });
  }

  for (const [why, token] of Object.entries(paddedTokens(now()))) {
    test(`3.7 3.8 a token with ${why} is refused without error`, async () => {
      assert.deepEqual(summary(await withToken(token)), {
        status: 401,
        type: TEXT,
        challenge: PLAIN_CHALLENGE,
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

  function withToken(token: string): Promise<HttpResponse> {
    return send(`${program.url}/notes`, { headers: { authorization: `Bearer ${token}` } });
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
      const headers = { authorization: `Bearer ${sign(claims(), secret)}` };
      const response = await send(`${program.url}/notes`, { headers });
      assert.equal(response.status, status);
    });
  }

  test('3.7 SIGNING_SECRET_PREVIOUS never signs', async () => {
    const token = await newToken(program);
    assert.equal(signedText(token.slice(0, token.lastIndexOf('.'))), token);
  });

  test('3.7 an expired token of the previous secret is refused', async () => {
    const token = sign({ ...claims(), exp: now() - 1 }, PREVIOUS);
    const headers = { authorization: `Bearer ${token}` };
    const response = await send(`${program.url}/notes`, { headers });
    assert.equal(response.headers.get('www-authenticate'), TOKEN_CHALLENGE);
    assert.equal(response.status, 401);
  });

  test('3.7 without SIGNING_SECRET_PREVIOUS its tokens are refused', async () => {
    await using other = await start();
    const headers = { authorization: `Bearer ${sign(claims(), PREVIOUS)}` };
    const response = await send(`${other.url}/notes`, { headers });
    assert.equal(response.status, 401);
  });
});

function claims() {
  return claimsAt(now());
}

function sign(payload: object, secret?: string): string {
  return signed(HEADER, payload, secret);
}

function now(): number {
  return Math.floor(Date.now() / 1000);
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
