/** The flags under which the image must work; docs/operations.md recommends them. */
export function hardened(memory = '128m'): readonly string[] {
  return [
    '--read-only',
    '--cap-drop=ALL',
    '--security-opt=no-new-privileges',
    '--pids-limit=64',
    `--memory=${memory}`,
  ];
}
