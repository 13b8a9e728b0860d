// The lockfiles. npm fetches each package from the configured registry and verifies its hash.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

type Entry = { readonly integrity?: string; readonly resolved?: string; readonly link?: boolean };

for (const file of ['package-lock.json', 'bench/package-lock.json']) {
  test(`every package in ${file} has an integrity hash, and none a URL`, () => {
    const text = readFileSync(join(import.meta.dirname, '..', file), 'utf8');
    const { packages } = JSON.parse(text) as { packages: Record<string, Entry> };
    // Skips folders of this repository and links to them.
    const installed = Object.entries(packages).filter(
      ([path, { link }]) => /(^|\/)node_modules\//.test(path) && !link,
    );
    assert.ok(installed.length > 50);
    for (const [path, { integrity = '', resolved }] of installed) {
      assert.match(integrity, /^sha512-[A-Za-z0-9+/]{86}==$/, path);
      assert.equal(resolved, undefined, path);
    }
    assert.doesNotMatch(text, /"(resolved|tarball)": "[a-z+]+:/);
  });
}
