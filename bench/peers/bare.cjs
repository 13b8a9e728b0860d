// The smallest possible node:http server, the baseline for start time and idle memory. It is
// CommonJS, because that starts faster.
require('node:http')
  .createServer((_req, res) => res.end('Hello, World!\n'))
  .listen(Number(process.env.PORT));
