// Bodies of POST /token that have no right pair (contract 3.3), with the default credentials of the tests.
import { PASSWORD, USER } from '../support/program.ts';

/** Strings, which count as a failed check (3.13). */
export const WRONG: readonly object[] = [
  { id: 'root', pw: PASSWORD },
  { id: USER, pw: 'wrong horse' },
  { id: USER, pw: '' },
  { id: 'a'.repeat(16_000), pw: PASSWORD },
];

/** Without two strings there is nothing to check. */
export const INCOMPLETE: readonly object[] = [
  { pw: PASSWORD },
  { id: USER },
  { id: [USER], pw: PASSWORD },
  { id: USER, pw: null },
  { id: USER, pw: { toString: PASSWORD } },
];
