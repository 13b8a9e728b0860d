// Prometheus' text exposition format 0.0.4.

/** Labels by name. An undefined one is omitted, which to Prometheus is the same as empty. */
export type Labels = Readonly<Record<string, string | undefined>>;

/** One line. The suffix, such as `_bucket`, follows the name of the family. */
export type Sample = readonly [suffix: string, labels: Labels, value: number];

/** Formats all samples of one name. No two have the same labels. */
export function family(
  name: string,
  type: 'counter' | 'gauge' | 'histogram',
  help: string,
  samples: readonly Sample[],
): string {
  const lines = samples.map(
    ([suffix, labels, value]) => `${name}${suffix}${labelText(labels)} ${value}\n`,
  );
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`;
}

/** One series. Recording a value allocates nothing. */
export class Histogram {
  readonly #labels: Labels;
  /** Ascending. */
  readonly #bounds: readonly number[];
  /** One more than the bounds: the last counts values above them. */
  readonly #counts: Float64Array;
  #sum = 0;

  constructor(bounds: readonly number[], labels: Labels) {
    this.#labels = labels;
    this.#bounds = bounds;
    this.#counts = new Float64Array(bounds.length + 1);
  }

  record(value: number): void {
    const bounds = this.#bounds;
    let i = 0;
    while (i < bounds.length && value > bounds[i]!) i++;
    this.#counts[i]!++;
    this.#sum += value;
  }

  /** Returns cumulative buckets, sum and count. */
  samples(): Sample[] {
    const labels = this.#labels;
    let count = 0;
    const buckets = [...this.#bounds, '+Inf'].map((bound, i): Sample => {
      count += this.#counts[i]!;
      return ['_bucket', { ...labels, le: String(bound) }, count];
    });
    return [...buckets, ['_sum', labels, this.#sum], ['_count', labels, count]];
  }
}

function labelText(labels: Labels): string {
  const pairs = Object.entries(labels).flatMap(([name, value]) => {
    const escaped = value?.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n');
    return escaped === undefined ? [] : `${name}="${escaped}"`;
  });
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}
