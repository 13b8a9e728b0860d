// The version of the service, and of the node that it needs. Plain JavaScript, which every node can read.

/** The version that --version, the metrics and openapi.json show. Same as in package.json. */
export const VERSION = '0.1.0';

const OLDEST_NODE = 24;
const { node } = process.versions;

/** Says what to do if this node is too old; otherwise undefined (9.7). */
export const nodeProblem =
  Number.parseInt(node, 10) < OLDEST_NODE
    ? `notes-users needs Node ${OLDEST_NODE} or newer, and this is Node ${node}. Install one from https://nodejs.org.`
    : undefined;
