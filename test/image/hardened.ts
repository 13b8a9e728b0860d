/** The flags under which the image must work; docs/operations.md recommends them. */
export const HARDENED: readonly string[] = [
  '--read-only',
  '--cap-drop=ALL',
  '--security-opt=no-new-privileges',
  '--pids-limit=64',
  '--memory=128m',
];
