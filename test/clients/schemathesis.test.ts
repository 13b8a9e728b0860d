// Runs schemathesis on both stores, with and without PROTECT_USERS. It derives valid and invalid
// requests from openapi.json and checks every response. All of its checks are on by default.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { token } from '../support/login.ts';
import { OPERATIONS } from '../support/openapi.ts';
import { newDatabase, newFolder, PASSWORD, STORES, start, USER } from '../support/program.ts';
import { IS_FULL, MISSING, run, SCHEMATHESIS } from './toolbox.ts';

const PATH = join(import.meta.dirname, '../../openapi.json');

/** Minimum number of requests for each operation. */
const EXAMPLES = IS_FULL ? 300 : 30;
/** CLIENTS=full sends new requests each time. schemathesis prints the seed of a failure. */
const SEED = IS_FULL ? [] : ['--seed', '16'];

/**
 * Returns the configuration. checks/hooks.py replaces `positive_data_acceptance`. By default the
 * fuzzing phase takes the ids that it deletes from earlier responses, and ends when none is left.
 */
const configuration = (token: string) => `
hooks = "hooks"
color = false
continue-on-failure = true
request-timeout = 60
workers = 1

[cache]
enabled = false

[generation]
database = "none"
max-examples = ${EXAMPLES}

[[operations]]
include-name = "DELETE /users/{id}"
phases.fuzzing.extra-data-sources.responses = false

[checks.positive_data_acceptance]
enabled = false
expected-statuses = ["2xx", "304", "401", "404", "412"]

[auth.openapi.bearer]
bearer = "${token}"

[auth.openapi.basic]
username = "${USER}"
password = "${PASSWORD}"
`;

describe('schemathesis', { skip: MISSING.python, concurrency: 2 }, () => {
  for (const store of STORES) {
    for (const isProtected of [false, true]) {
      test(`8.1 schemathesis finds no failure (${store}, PROTECT_USERS=${isProtected})`, async (t) => {
        await using program = await start({
          PROTECT_USERS: String(isProtected),
          DATABASE_URL: await newDatabase(store),
          // schemathesis also sends invalid credentials.
          AUTH_FAILURES_PER_MINUTE: '0',
        });
        const folder = newFolder();
        const config = join(folder, 'schemathesis.toml');
        writeFileSync(config, configuration(await token(program)));
        const args = ['run', PATH, '--url', program.url, ...SEED];
        const output = await run(SCHEMATHESIS, ['--config-file', config, ...args], {
          cwd: folder,
          env: { PYTHONPATH: join(import.meta.dirname, 'checks') },
        });
        assert.match(output, new RegExp(`Tested: ${OPERATIONS.length}$`, 'm'));
        assert.doesNotMatch(output, /\d (?:failed|errored)/);
        t.diagnostic(/Test cases:\n *(.*)/.exec(output)?.[1] ?? '');
        const requests = program.log.filter(({ message }) => message === 'request');
        const counts = Object.groupBy(
          requests,
          ({ method, route }): string => `${method} ${route}`,
        );
        for (const { method, path } of OPERATIONS) {
          const operation = `${method} ${path}`;
          const count = counts[operation]?.length ?? 0;
          assert.ok(count >= EXAMPLES, `${count} requests of ${operation}`);
        }
        const failures = requests.filter(({ status }) => Number(status) >= 500);
        assert.deepEqual(failures, []);
        for (const expected of [200, 201, 204, 400, 401, 404, 405, 412, 415]) {
          assert.ok(
            requests.some(({ status }) => status === expected),
            `no ${expected}`,
          );
        }
      });
    }
  }
});
