// Servers that answer anything else than they should.
module.exports = async (vscode, given) => {
  const { ask, models, plain, run, set, until } = require('./using')(vscode);
  const short = answer => {
    const { text, thinking, calls, error } = plain(answer);
    return { text: text.slice(0, 200), thinking, calls, error };
  };
  await set('startTimeout', 1);
  await set('inactivityTimeout', 2);
  const checks = {};
  for (const kind of given.lists) {
    checks[`list ${kind}`] = async () => {
      await set('address', `${given.hostile}/${kind}`);
      const began = performance.now();
      const found = await models();
      return { models: found.map(each => each.id), seconds: (performance.now() - began) / 1000 };
    };
  }
  for (const address of given.addresses) {
    checks[`address ${address}`] = async () => {
      await set('address', address);
      return (await models()).map(each => each.id);
    };
  }
  checks.spelled = async () => {
    await set('address', ` ${given.hostile}/v1// `);
    return (await until(found => found.length > 0)).length;
  };
  checks.models = async () => {
    await set('address', given.hostile);
    return (await until(found => found.length > 0)).map(({ id, name, family, pricing, maxInputTokens }) => ({ id, name, family, pricing, maxInputTokens }));
  };
  for (const kind of given.answers) checks[kind] = async () => short(await ask(kind, 'Hello'));
  checks.tokens = async () => {
    const [model] = await models();
    return model.countTokens('Hello').then(count => ({ count }), error => ({ name: error.name, code: error.code, message: error.message }));
  };
  return run(checks);
};
