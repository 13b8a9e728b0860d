// What the service measures, and the page that reports it (contract 7.3). Names, labels and bounds
// are those of OpenTelemetry's semantic conventions, as Prometheus writes them. Labels come from
// the route table and from lists in this file, never from a request: the series are bounded.

import { VERSION } from '../version.ts';
import { family, Histogram, type Sample } from './exposition.ts';
import { type Failure, OPERATIONS, type Operation } from './measured.ts';
import { Runtime } from './runtime.ts';

/** What is measured. */
export interface MetricsOptions {
  /** The table, by `METHOD /path`. */
  readonly routes: Readonly<Record<string, unknown>>;
  /** Which store the operations are of. */
  readonly engine: 'sqlite' | 'postgres';
  /** Connections to the store; undefined where it has none. */
  readonly connections: () => { readonly used: number; readonly idle: number } | undefined;
}

/** An answered request. */
export interface Answered {
  readonly method: string;
  /** The route's pattern, empty where none was found. */
  readonly route: string;
  readonly status: number;
}

/** Upper bounds in seconds that the conventions advise, of requests and of operations. */
const REQUEST_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const OPERATION_BOUNDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10];

/** Stands for every method that the table does not have, and for bytes that are no request. */
const OTHER_METHOD = '_OTHER';

/** `db.system.name` of the conventions. */
const SYSTEMS = { sqlite: 'sqlite', postgres: 'postgresql' } as const;

/** Counts and times; `page` writes them out. */
export class Metrics {
  readonly #options: MetricsOptions;
  readonly #methods: readonly string[];
  readonly #methodIndex: ReadonlyMap<string, number>;
  readonly #active: Float64Array;
  // By route, then by status and method in one number. A series is made when it is first needed.
  readonly #requests: ReadonlyMap<string, Map<number, Histogram>>;
  readonly #operations: ReadonlyMap<Operation, Map<Failure | undefined, Histogram>>;
  readonly #runtime = new Runtime();

  constructor(options: MetricsOptions) {
    this.#options = options;
    const table = Object.keys(options.routes).map((key) => key.split(' ') as [string, string]);
    const methods = table.map(([method]) => method);
    const patterns = table.map(([, pattern]) => pattern);
    this.#methods = [OTHER_METHOD, ...new Set([...methods, 'HEAD', 'OPTIONS'])];
    this.#methodIndex = new Map(this.#methods.map((method, i) => [method, i]));
    this.#requests = new Map(['', ...patterns].map((pattern) => [pattern, new Map()]));
    this.#operations = new Map(OPERATIONS.map((operation) => [operation, new Map()]));
    this.#active = new Float64Array(this.#methods.length);
  }

  /** A request has come. */
  begin(method: string): void {
    // 7.3
    this.#active[this.#methodIndex.get(method) ?? 0]!++;
  }

  /** It was answered, `ms` milliseconds later. */
  end({ method, route, status }: Answered, ms: number): void {
    // 7.3
    const index = this.#methodIndex.get(method) ?? 0;
    this.#active[index]!--;
    const series = this.#requests.get(route) ?? this.#requests.get('')!;
    histogram(series, status * this.#methods.length + index, REQUEST_BOUNDS).record(ms / 1000);
  }

  /** The store has answered, or failed. */
  operation(operation: Operation, ms: number, failure: Failure | undefined): void {
    // 7.3
    const series = this.#operations.get(operation)!;
    histogram(series, failure, OPERATION_BOUNDS).record(ms / 1000);
  }

  /** All of it, in the text format. Delays of the event loop are those since the page before. */
  page(): string {
    const system = SYSTEMS[this.#options.engine];
    const connections = this.#options.connections();
    const page = [
      family(
        'http_server_request_duration_seconds',
        'histogram',
        'Time from the head of a request to its answer.',
        this.#requestSamples(),
      ),
      family(
        'http_server_active_requests',
        'gauge',
        'Requests that have no answer yet.',
        this.#methods.map((method, i) => ['', { http_request_method: method }, this.#active[i]!]),
      ),
      family(
        'db_client_operation_duration_seconds',
        'histogram',
        'Time that a call of the store takes, waiting for a connection included.',
        this.#operationSamples(system),
      ),
      connections &&
        family('db_client_connections', 'gauge', 'Connections to the store.', [
          ['', { db_system_name: system, db_client_connection_state: 'idle' }, connections.idle],
          ['', { db_system_name: system, db_client_connection_state: 'used' }, connections.used],
        ]),
      ...this.#runtime.families(),
      family('build_info', 'gauge', 'Always 1; the label is what counts.', [
        // 7.3
        ['', { version: VERSION }, 1],
      ]),
    ];
    return page.join('');
  }

  /** Ends what goes on by itself. */
  close(): void {
    this.#runtime.close();
  }

  #requestSamples(): Sample[] {
    const methods = this.#methods;
    return [...this.#requests].flatMap(([route, series]) =>
      [...series].flatMap(([key, durations]) =>
        durations.samples({
          http_request_method: methods[key % methods.length],
          http_route: route === '' ? undefined : route,
          http_response_status_code: String(Math.floor(key / methods.length)),
        }),
      ),
    );
  }

  #operationSamples(system: string): Sample[] {
    return [...this.#operations].flatMap(([operation, series]) =>
      [...series].flatMap(([failure, durations]) =>
        durations.samples({
          db_system_name: system,
          db_operation_name: operation,
          error_type: failure,
        }),
      ),
    );
  }
}

function histogram<Key>(
  series: Map<Key, Histogram>,
  key: Key,
  bounds: readonly number[],
): Histogram {
  const known = series.get(key);
  if (known !== undefined) return known;
  const made = new Histogram(bounds);
  series.set(key, made);
  return made;
}
