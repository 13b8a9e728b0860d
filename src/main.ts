// The program: its arguments, environment, signals and exit status. The only file that touches
// `process`, but for the uid in store/file.ts, the usage in ops/runtime.ts, and
// store/connection.ts, which hides the environment from the driver.
import { once } from 'node:events';
import { fstatSync, write } from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { type Config, InvalidConfig, readAdminAddress, readConfig } from './config.ts';
import { Log, type Sink } from './ops/log.ts';
import { type Service, startService } from './service.ts';
import { VERSION } from './version.ts';

const OLDEST_NODE = 24;

/** Exit statuses; 70 and 78 are EX_SOFTWARE and EX_CONFIG of sysexits.h. */
const EXIT = { ok: 0, failed: 1, software: 70, config: 78 } as const; // 6.11

const USAGE = 'usage: notes-users [--json | --live | --ready | --help | --version]';

const HELP = `${USAGE}

  --json     log JSON lines on a terminal too
  --live     exit with 0 if the running service responds, else with 1
  --ready    exit with 0 if the running service takes requests, else with 1
  --help     print this text
  --version  print the version

Settings come from environment variables; docs/contract.md lists them.
`;

/** Its file descriptor. */
const STDOUT = 1;

const LINE_FEED = 0x0a;

/** What node does not declare of a terminal. */
type Terminal = { readonly _handle?: { readonly setBlocking?: (isBlocking: boolean) => void } };

const PROBE_TIMEOUT_MS = 2_500; // 6.5
const FLUSH_TIMEOUT_MS = 500;

// False in the built file when it is imported, as test suites do; absent in node before 24.2.
if (import.meta.main !== false) main();

async function main(): Promise<void> {
  const { node } = process.versions;
  if (Number.parseInt(node, 10) < OLDEST_NODE) {
    // 9.7
    return fail(EXIT.failed, [`notes-users needs node ${OLDEST_NODE} or newer, this is ${node}`]);
  }
  const [argument, ...rest] = process.argv.slice(2);
  if (rest.length > 0) return fail(EXIT.failed, [USAGE]); // 6.11
  switch (argument) {
    case '--live':
    case '--ready':
      return probe(argument.slice(2));
    case '--help':
      return void process.stdout.write(HELP); // 6.11
    case '--version':
      return void process.stdout.write(`notes-users ${VERSION}\n`); // 6.11
    case undefined:
    case '':
    case '--json':
      return serve(argument === '--json');
    default:
      return fail(EXIT.failed, [USAGE]); // 6.11
  }
}

/** Asks the admin listener of a running service: exit status 0 when it says yes. */
async function probe(page: string): Promise<void> {
  // 6.5
  let address = '';
  try {
    const { host, port } = readAdminAddress(process.env);
    address = `${host}:${port}`;
    const signal = AbortSignal.timeout(PROBE_TIMEOUT_MS);
    const asked = get({ host, port, path: `/${page}`, agent: false, signal });
    const [res] = (await once(asked, 'response')) as [IncomingMessage];
    const body = await text(res);
    if (res.statusCode !== 200) fail(EXIT.failed, [body.trim()]);
  } catch (err) {
    if (err instanceof InvalidConfig) return fail(EXIT.failed, err.problems);
    // The cause of an AbortError names the timeout; an AggregateError has no message of its own.
    const { message, code, cause } = err as NodeJS.ErrnoException;
    const reason = (cause as Error | undefined)?.message ?? (message || code);
    fail(EXIT.failed, [`no answer from the admin listener at ${address}: ${reason}`]);
  }
}

async function serve(isJson: boolean): Promise<void> {
  let config: Config;
  try {
    config = readConfig(process.env); // 1.1
  } catch (err) {
    if (err instanceof InvalidConfig) return fail(EXIT.config, err.problems); // 1.6
    throw err;
  }
  const format = process.stdout.isTTY && !isJson ? 'text' : 'json'; // 6.7
  // A reader of the log that has gone must not end the service.
  process.stdout.on('error', () => {}); // 6.10
  process.stderr.on('error', () => {});
  // Node writes to a terminal while all else waits, too: Ctrl-S would hold us (contract 6.10).
  for (const stream of [process.stdout, process.stderr] as Terminal[]) {
    stream._handle?.setBlocking?.(false); // 6.10
  }
  const sink: Sink = fstatSync(STDOUT).isFile()
    ? fileSink()
    : (lines, done) => process.stdout.write(lines, () => done());
  const log = new Log(config.logLevel, format, sink);
  const exit = async (status: number) => {
    // A reader of the log that stands still must not keep the process either.
    setTimeout(() => process.exit(status), FLUSH_TIMEOUT_MS); // 6.12
    await log.flush();
    process.exit(status);
  };

  let service: Service | undefined;
  let isStopping = false;
  let hasFault = false;
  let signals = 0;
  const stop = async () => {
    if (isStopping) return;
    isStopping = true;
    // Before it serves there is nothing to finish.
    const isInTime = service === undefined || (await service.stop().catch(() => false)); // 6.2
    await exit(hasFault ? EXIT.software : isInTime ? EXIT.ok : EXIT.failed);
  };
  const onSignal = () => {
    signals++;
    if (signals > 1)
      exit(EXIT.failed); // 6.2
    else stop();
  };
  const onFault = (err: unknown) => {
    // 6.16
    log.error('fault outside a request', { cause: (err as Error)?.stack ?? String(err) });
    if (isSurvivable(err)) return;
    hasFault = true;
    stop();
  };
  process.on('uncaughtException', onFault);
  process.on('unhandledRejection', onFault);
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  // Without a handler of its own it would end a process that still starts.
  process.on('SIGHUP', () => {
    if (config.tls === undefined || service === undefined) return; // 6.9
    try {
      service.reloadTls();
      log.info('TLS certificate reloaded');
    } catch (err) {
      log.error('TLS certificate not reloaded', { cause: (err as Error).message });
    }
  });

  try {
    service = await startService(config, log, (err) => {
      log.error('cannot serve', { cause: err.message });
      process.stderr.write(`${err.message}\n`);
      exit(EXIT.failed);
    });
    if (config.authPassword === undefined) {
      const { user, password } = service.credential;
      process.stderr.write(`AUTH_PASSWORD is not set; generated for user ${user}: ${password}\n`);
    }
    if (config.signingSecret === undefined) {
      process.stderr.write('SIGNING_SECRET is not set; tokens end with this process\n');
    }
  } catch (err) {
    fail(EXIT.failed, [(err as Error).message]); // 6.4
    await exit(EXIT.failed);
  }
}

/** The other end of a connection is gone, which says nothing about the rest of the process. */
const PEER_GONE = ['ECONNRESET', 'ECONNREFUSED', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH'];

const OF_DRIVER = /[\\/]node_modules[\\/]postgres[\\/]/;

/**
 * Whether the process can be trusted after this fault. The driver of Postgres can throw where nobody
 * can catch it; the pool replaces that connection. After any other error our own state is unknown.
 */
function isSurvivable(err: unknown): boolean {
  // 6.16
  const { code, stack } = (err ?? {}) as NodeJS.ErrnoException;
  if (code !== undefined && PEER_GONE.includes(code)) return true;
  // The frame that threw: a callback of ours that the driver has called is not the driver.
  const frame = String(stack)
    .split('\n')
    .find((line) => /^ +at (?!.*\bnode:)/.test(line));
  return frame !== undefined && OF_DRIVER.test(frame);
}

/**
 * Writes to the file that is standard output; node's own stream would do so while all else waits
 * (contract 6.6, 6.10). A line of which a full disk took a part is ended before the next (6.7).
 */
function fileSink(): Sink {
  let isTorn = false;
  return (lines, done) => {
    const bytes = Buffer.from(isTorn ? `\n${lines}` : lines);
    write(STDOUT, bytes, (_err, count) => {
      if (count > 0) isTorn = bytes[count - 1] !== LINE_FEED;
      done();
    });
  };
}

function fail(status: number, lines: readonly string[]): void {
  process.stderr.write(lines.map((line) => `${line}\n`).join(''));
  process.exitCode = status;
}
