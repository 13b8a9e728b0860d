// The log: one JSON object a line, or text for a terminal. Lines are gathered and written once a
// turn of the event loop, with one write in flight. Never in it: bodies, emails, tokens,
// Authorization headers, query strings.

/** From nothing to everything. */
export const LEVELS = ['silent', 'error', 'info', 'debug'] as const;
/** One of LEVELS. */
export type Level = (typeof LEVELS)[number];

const INFO = LEVELS.indexOf('info');

/** JSON lines for programs, text for a terminal. */
export type Format = 'json' | 'text';

/** Takes a text, and calls back when it may be given more. */
export type Sink = (text: string, done: () => void) => void;

type Fields = Readonly<Record<string, string | number | undefined>>;

/** A request's line. */
export interface RequestLine {
  readonly requestId: string;
  readonly method: string;
  readonly route: string;
  readonly status: number;
  readonly bytes: number;
  readonly client: string;
}

/** Lines that the sink has not taken are dropped beyond this many characters, and counted. */
const MAX_PENDING_CHARACTERS = 4 * 1024 * 1024;

/** Writes lines to a sink. */
export class Log {
  readonly #level: number;
  readonly #format: Format;
  readonly #sink: Sink;
  #pending = '';
  #dropped = 0;
  #isScheduled = false;
  #isWriting = false;
  readonly #onWritten: (() => void)[] = [];

  constructor(level: Level, format: Format, sink: Sink) {
    this.#level = LEVELS.indexOf(level);
    this.#format = format;
    this.#sink = sink;
  }

  /** A failure on our side. */
  error(message: string, fields: Fields = {}): void {
    this.#line('error', message, fields);
  }

  /** What an operator wants to know. */
  info(message: string, fields: Fields = {}): void {
    this.#line('info', message, fields);
  }

  /** What a maintainer wants to know. */
  debug(message: string, fields: Fields = {}): void {
    this.#line('debug', message, fields);
  }

  /** A request that was answered after `ms` milliseconds. */
  request(line: RequestLine, ms: number): void {
    // 6.8
    if (this.#level < INFO) return;
    const { requestId, method, route, status, bytes, client } = line;
    const time = new Date().toISOString();
    // No value of these can hold a quote or a backslash, so JSON.stringify is not needed.
    this.#write(
      this.#format === 'text'
        ? `${time.slice(11, 23)} ${status} ${method} ${route} ${ms.toFixed(1)} ms ${bytes} B ${client} ${requestId}\n`
        : `{"time":"${time}","level":"info","message":"request","requestId":"${requestId}","method":"${method}","route":"${route}","status":${status},"ms":${ms.toFixed(3)},"bytes":${bytes},"client":"${client}"}\n`,
    );
  }

  /** Resolves when everything has been handed to the sink and taken. */
  async flush(): Promise<void> {
    while (this.#pending !== '' || this.#isWriting) {
      await new Promise<void>((resolve) => {
        this.#onWritten.push(resolve);
        this.#flush();
      });
    }
  }

  #line(level: Level, message: string, fields: Fields): void {
    // 6.7
    if (this.#level < LEVELS.indexOf(level)) return;
    const time = new Date().toISOString();
    if (this.#format === 'json') {
      this.#write(`${JSON.stringify({ time, level, message, ...fields })}\n`);
      return;
    }
    const shown = Object.entries(fields).filter(([, value]) => value !== undefined);
    const list = shown.map(([key, value]) => ` ${key}=${value}`).join('');
    this.#write(`${time.slice(11, 23)} ${level === 'info' ? '' : `${level}: `}${message}${list}\n`);
  }

  #write(line: string): void {
    if (this.#pending.length > MAX_PENDING_CHARACTERS) {
      // 6.10
      this.#dropped++;
      return;
    }
    this.#pending += line;
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#isWriting || this.#pending === '') return;
    const text = this.#pending;
    this.#pending = '';
    this.#isWriting = true;
    this.#sink(text, () => {
      this.#isWriting = false;
      this.#flush();
      if (this.#dropped > 0) {
        const count = this.#dropped;
        this.#dropped = 0;
        this.error('log lines dropped', { count });
      }
      for (const resolve of this.#onWritten.splice(0)) resolve();
    });
  }
}
