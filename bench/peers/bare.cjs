// The least node:http server there is, CommonJS as it starts faster: the measure for start time
// and idle memory.
require('node:http')
  .createServer((_req, res) => res.end('Hello, World!\n'))
  .listen(Number(process.env.PORT));
