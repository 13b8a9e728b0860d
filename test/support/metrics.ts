// Reads Prometheus' text format, and runs Prometheus' own tool.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { send } from './client.ts';
import { missing } from './tools.ts';

export const WITHOUT_PROMTOOL = missing('promtool');

/** Runs promtool, which must exit with 0; returns its output. */
export function promtool(args: readonly string[], input = ''): string {
  const { status, stdout, stderr } = spawnSync('promtool', args, { input, encoding: 'utf8' });
  assert.equal(status, 0, stdout + stderr);
  return stdout + stderr;
}

export class Page {
  readonly text: string;
  readonly values: ReadonlyMap<string, number>;

  static async of(adminUrl: string): Promise<Page> {
    return new Page((await send(`${adminUrl}/metrics`)).body);
  }

  constructor(text: string) {
    this.text = text;
    const lines = text.matchAll(/^([^#].*) (\S+)$/gm);
    this.values = new Map(Array.from(lines, ([, series, value]) => [series!, Number(value)]));
  }

  /** Returns every value of a name by its labels as text. The text is empty without labels. */
  series(name: string): Record<string, number> {
    const own = [...this.values].filter(([key]) => key === name || key.startsWith(`${name}{`));
    return Object.fromEntries(own.map(([key, value]) => [key.slice(name.length + 1, -1), value]));
  }
}
