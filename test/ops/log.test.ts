// The log: formats, levels, and writing to a sink.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Format, LEVELS, type Level, Log } from '../../src/ops/log.ts';

const REQUEST = {
  requestId: 'r-1',
  traceId: undefined,
  method: 'GET',
  route: '/users/{id}',
  status: 200,
  bytes: 61,
  client: '192.0.2.1',
};
const NOW = Date.UTC(2026, 0, 2, 3, 4, 5, 6);

/** Returns a log whose sink accepts everything at once and keeps it. */
function kept(level: Level = 'info', format: Format = 'json') {
  const texts: string[] = [];
  const sink = async (text: string) => {
    texts.push(text);
    await turn();
  };
  return { log: new Log(level, format, sink, () => NOW), texts };
}

/** Returns a log whose sink accepts each text only when the test allows it. */
function slow(level: Level = 'info') {
  const texts: string[] = [];
  const waiting: (() => void)[] = [];
  const log = new Log(level, 'json', (text) => {
    texts.push(text);
    return new Promise((resolve) => waiting.push(resolve));
  });
  return { log, texts, take: () => waiting.shift()!() };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));
const messages = (text: string) =>
  text
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line).message);

describe('lines as JSON', () => {
  test('a message has its time, level and fields in this order', async () => {
    const { log, texts } = kept();
    log.info('listening', { url: 'http://localhost:3000', port: 3000 });
    await log.flush();
    assert.deepEqual(texts, [
      '{"time":"2026-01-02T03:04:05.006Z","level":"info","message":"listening","url":"http://localhost:3000","port":3000}\n',
    ]);
  });

  test('a field without a value is left out', async () => {
    const { log, texts } = kept();
    log.info('listening', { adminUrl: undefined });
    await log.flush();
    assert.deepEqual(Object.keys(JSON.parse(texts[0]!)), ['time', 'level', 'message']);
  });

  test('quotes, line feeds and control characters stay within their line', async () => {
    const { log, texts } = kept();
    const cause = 'a "quoted"\n{"level":"info"}\r\u0000\u001b[31m\u2028😀\ud83d';
    log.error('request failed', { cause });
    await log.flush();
    assert.equal(texts[0]!.split('\n').length, 2);
    const { level, message, cause: read } = JSON.parse(texts[0]!);
    assert.deepEqual([level, message, read], ['error', 'request failed', cause]);
  });

  test('6.8 a request’s line has all its fields, milliseconds with three digits', async () => {
    const { log, texts } = kept();
    log.request(REQUEST, 1.23456);
    await log.flush();
    assert.deepEqual(texts, [
      '{"time":"2026-01-02T03:04:05.006Z","level":"info","message":"request","requestId":"r-1","method":"GET","route":"/users/{id}","status":200,"ms":1.235,"bytes":61,"client":"192.0.2.1"}\n',
    ]);
  });

  test('6.8 with a trace id, it follows the request id', async () => {
    const { log, texts } = kept();
    log.request({ ...REQUEST, traceId: 'abc' }, 1);
    await log.flush();
    assert.match(texts[0]!, /"requestId":"r-1","traceId":"abc","method":/);
  });

  test('a request without a route has a JSON line too', async () => {
    const { log, texts } = kept();
    log.request({ ...REQUEST, method: '', route: '', client: '' }, 0);
    await log.flush();
    const { method, route, client, ms } = JSON.parse(texts[0]!);
    assert.deepEqual({ method, route, client, ms }, { method: '', route: '', client: '', ms: 0 });
  });

  test('a request’s line has no other members of an exchange, such as an error', async () => {
    const { log, texts } = kept();
    log.request({ ...REQUEST, fault: new Error('secret'), query: 'secret' } as typeof REQUEST, 1);
    await log.flush();
    assert.ok(!texts.join().includes('secret'));
  });
});

describe('lines as text', () => {
  for (const { why, write, line } of [
    {
      why: 'info',
      write: (log: Log) => log.info('listening', { url: 'u', none: undefined, n: 1 }),
      line: '03:04:05.006 listening url=u n=1\n',
    },
    {
      why: 'error',
      write: (log: Log) => log.error('request failed', { cause: 'c' }),
      line: '03:04:05.006 error: request failed cause=c\n',
    },
    { why: 'debug', write: (log: Log) => log.debug('x'), line: '03:04:05.006 debug: x\n' },
    {
      why: 'a request',
      write: (log: Log) => log.request(REQUEST, 1.26),
      line: '03:04:05.006 200 GET /users/{id} 1.3 ms 61 B 192.0.2.1 r-1\n',
    },
  ]) {
    test(`${why}: ${line.trim()}`, async () => {
      const { log, texts } = kept('debug', 'text');
      write(log);
      await log.flush();
      assert.deepEqual(texts, [line]);
    });
  }
});

describe('levels', () => {
  const written = {
    silent: [],
    error: ['an error'],
    info: ['an error', 'a message', 'request'],
    debug: ['an error', 'a message', 'request', 'a detail'],
  };
  for (const level of LEVELS) {
    test(`${level} writes ${written[level].join(', ') || 'nothing'}`, async () => {
      const { log, texts } = kept(level);
      log.error('an error');
      log.info('a message');
      log.request(REQUEST, 1);
      log.debug('a detail');
      await log.flush();
      assert.deepEqual(messages(texts.join('')), written[level]);
    });
  }
});

describe('writing to the sink', () => {
  test('lines of one turn are written together, after the turn', async () => {
    const { log, texts } = kept();
    log.info('1');
    log.info('2');
    assert.deepEqual(texts, []);
    await turn();
    assert.deepEqual(texts.map(messages), [['1', '2']]);
  });

  test('only one write is in flight: later lines wait and are written together', async () => {
    const { log, texts, take } = slow();
    log.info('1');
    await turn();
    log.info('2');
    await turn();
    log.info('3');
    await turn();
    assert.deepEqual(texts.map(messages), [['1']]);
    take();
    await turn();
    assert.deepEqual(texts.map(messages), [['1'], ['2', '3']]);
  });

  test('flush resolves when the sink has accepted everything', async () => {
    const { log, texts, take } = slow();
    log.info('1');
    let isFlushed = false;
    const flushed = log.flush().then(() => {
      isFlushed = true;
    });
    await turn();
    log.info('2');
    await turn();
    assert.equal(isFlushed, false);
    take();
    await turn();
    assert.equal(isFlushed, false);
    take();
    await flushed;
    assert.deepEqual(texts.map(messages), [['1'], ['2']]);
  });

  test('flush without lines resolves', () => kept().log.flush());

  test('two flushes at once resolve both', async () => {
    const { log, take } = slow();
    log.info('1');
    let resolved = 0;
    for (let i = 0; i < 2; i++) log.flush().then(() => resolved++);
    await turn();
    take();
    await turn();
    assert.equal(resolved, 2);
  });

  test('6.10 a blocked sink costs at most 4 MiB, and dropped lines are counted', async () => {
    const { log, texts, take } = slow();
    log.info('first');
    await turn();
    const fill = 'x'.repeat(1000);
    for (let i = 0; i < 10_000; i++) log.info(String(i), { fill });
    await turn();
    take();
    await turn();
    assert.ok(texts[1]!.length > 4 * 2 ** 20 && texts[1]!.length < 4 * 2 ** 20 + 2000);
    const kept = messages(texts[1]!);
    assert.deepEqual(kept.slice(0, 3), ['0', '1', '2']);
    take();
    await turn();
    const lines = texts.slice(2).join('').split('\n').slice(0, -1);
    const reports = lines.map((line) => JSON.parse(line));
    const dropped = reports.filter(({ message }) => message === 'log lines dropped');
    const counts = dropped.map(({ count }) => count);
    assert.equal(
      log.droppedCount,
      counts.reduce((sum, count) => sum + count, 0),
    );
    const logged = [kept.length, ...counts, reports.length - dropped.length];
    assert.equal(
      logged.reduce((sum, count) => sum + count, 0),
      10_000,
    );
    assert.ok(dropped.every(({ level }) => level === 'error'));
  });
});
