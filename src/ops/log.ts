// The log: one JSON object per line, or text for a terminal, without bodies, emails, tokens, Authorization
// headers and queries. Lines are written once per turn of the event loop, with one write in flight.
import { dateOf, nextTurn, unixMs } from '../clock.ts';
import type { Exchange } from '../http/exchange.ts';

export const LEVELS = ['silent', 'error', 'info', 'debug'] as const;
export type Level = (typeof LEVELS)[number];
export type Format = 'json' | 'text';

/** Writes a text. Resolves when it can take more, with what was not written, and never rejects. */
export type Sink = (text: string) => Promise<string>;

/** What a request's line has besides its time (6.8). */
export type RequestLine = Pick<
  Exchange,
  'requestId' | 'traceId' | 'method' | 'route' | 'status' | 'bytes' | 'client'
>;
type Fields = Readonly<Record<string, string | number | undefined>>;

const MAX_PENDING_CHARACTERS = 4 * 1024 * 1024; // Later lines are dropped and counted.

export class Log {
  readonly #level: number;
  readonly #format: Format;
  readonly #sink: Sink;
  readonly #now: () => number;
  droppedCount = 0; // lines, since the start (7.3)
  #pending = '';
  #reportedCount = 0; // of those
  #isFailing = false; // The sink did not write the last text.
  #writing: Promise<void> | undefined; // until the sink has taken everything
  #nowMs = 0;
  #nowText = '';

  /** `now` returns the Unix time in milliseconds. */
  constructor(level: Level, format: Format, sink: Sink, now = unixMs) {
    this.#now = now;
    this.#level = LEVELS.indexOf(level);
    this.#format = format;
    this.#sink = sink;
  }

  readonly error = (message: string, fields?: Fields) => this.#line('error', message, fields);
  readonly info = (message: string, fields?: Fields) => this.#line('info', message, fields);
  readonly debug = (message: string, fields?: Fields) => this.#line('debug', message, fields);

  /** Logs a request that took `ms` milliseconds, and its response (6.8). */
  request(line: RequestLine, ms: number): void {
    if (this.#level < LEVELS.indexOf('info')) return;
    const { requestId, traceId, method, route, status, bytes, client } = line;
    const time = this.#time();
    const trace = traceId === undefined ? '' : `,"traceId":"${traceId}"`;
    // None of these values can contain a quote or a backslash, so JSON.stringify is not needed.
    this.#write(
      this.#format === 'text'
        ? `${time.slice(11, 23)} ${status} ${method} ${route} ${ms.toFixed(1)} ms ${bytes} B ${client} ${requestId}`
        : `{"time":"${time}","level":"info","message":"request","requestId":"${requestId}"${trace},"method":"${method}","route":"${route}","status":${status},"ms":${ms.toFixed(3)},"bytes":${bytes},"client":"${client}"}`,
    );
  }

  /** Resolves when the sink has taken everything. */
  async flush(): Promise<void> {
    await this.#writing;
  }

  #line(level: Level, message: string, fields: Fields = {}): void {
    if (this.#level < LEVELS.indexOf(level)) return;
    const time = this.#time();
    if (this.#format === 'json') {
      this.#write(JSON.stringify({ time, level, message, ...fields })); // 6.7
    } else {
      const shown = Object.entries(fields).filter(([, value]) => value !== undefined);
      const list = shown.map(([key, value]) => ` ${key}=${value}`).join('');
      const prefix = level === 'info' ? '' : `${level}: `;
      this.#write(`${time.slice(11, 23)} ${prefix}${message}${list}`);
    }
  }

  /** The time in ISO 8601. Requests of one millisecond share the text: making it costs 1 µs. */
  #time(): string {
    const nowMs = this.#now();
    if (nowMs !== this.#nowMs) {
      this.#nowMs = nowMs;
      this.#nowText = dateOf(nowMs).toISOString();
    }
    return this.#nowText;
  }

  #write(line: string): void {
    if (this.#pending.length > MAX_PENDING_CHARACTERS) {
      this.droppedCount++; // 6.10
      return;
    }
    // join() copies the text. Otherwise V8 would keep the whole headers of which the line has parts.
    this.#pending += [line, '\n'].join('');
    this.#writing ??= this.#drain();
  }

  /** Collects the lines of this turn, then writes until none is left. */
  async #drain(): Promise<void> {
    await nextTurn();
    while (this.#pending !== '') {
      const text = this.#pending;
      this.#pending = '';
      const count = this.#isFailing ? 0 : this.droppedCount - this.#reportedCount;
      this.#reportedCount += count;
      if (count > 0) this.error('log lines dropped', { count });
      const unwritten = await this.#sink(text);
      this.#isFailing = unwritten !== '';
      this.droppedCount += unwritten.split('\n').length - 1;
    }
    this.#writing = undefined;
  }
}
