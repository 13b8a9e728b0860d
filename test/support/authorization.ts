// Which Authorization headers are accepted, and the challenges of the others (contract 3.6, 3.8, 3.10). Tokens are in
// test/auth/jwt.test.ts, pairs in test/auth/credential.test.ts.
import assert from 'node:assert/strict';
import { exchange } from './bytes.ts';
import { basic } from './client.ts';
import { token as newToken } from './login.ts';
import { PASSWORD, USER } from './program.ts';

/** Sends headers of each form. None of them is a failed check (3.13). */
export async function checkAuthorization(url: string): Promise<void> {
  const ask = async (path: string, ...values: readonly string[]) => {
    const fields = values.map((value, i) => `${i % 2 ? 'a' : 'A'}uthorization: ${value}`);
    const lines = [`GET ${path} HTTP/1.1`, 'Host: x', 'Connection: close', ...fields, '\r\n'];
    const { status, headers } = (await exchange(url, lines.join('\r\n')))[0]!;
    return `${status} ${headers.get('www-authenticate')}`;
  };
  const [token, pair] = [`Bearer ${await newToken({ url })}`, basic(USER, PASSWORD)];
  const bearer = '401 Bearer realm="notes"';
  for (const [path, right, other, challenge] of [
    ['/notes', token, pair, bearer],
    ['/protected', pair, token, '401 Basic realm="protected", charset="UTF-8"'],
  ] as const) {
    const [scheme, value] = right.split(' ') as [string, string];
    const malformed = [
      ...['', scheme, value, `${scheme}  ${value}`, `${right} more`, `${scheme}\t${value}`],
      ...[`${scheme}\xa0${value}`, `${scheme},${value}`, `X${right}`, other],
    ].map((text) => [text]);
    const repeated = [
      [right, right],
      [right, ''],
      ['', right],
      [right, 'Basic YTpi'],
    ];
    for (const values of [[], ...repeated, ...malformed]) {
      assert.equal(await ask(path, ...values), challenge, values.join());
    }
    for (const name of [scheme.toUpperCase(), scheme.toLowerCase()]) {
      assert.equal(await ask(path, `${name} ${value}`), '200 null');
    }
  }
  // RFC 9110 §11.2: no token68
  for (const text of ['a"b', '\xe9', '=', 'a=b', 'a=.b.c']) {
    assert.equal(await ask('/notes', `Bearer ${text}`), bearer, text);
  }
  for (const text of ['Bearer aZ09-._~+/==', `${token}x`]) {
    assert.equal(await ask('/notes', text), `${bearer}, error="invalid_token"`);
  }
}
