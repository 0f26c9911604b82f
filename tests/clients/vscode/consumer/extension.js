// Another extension: runs the script that VSCODE_TEST names, and writes what it returns to VSCODE_TEST_OUT.
const fs = require('node:fs');
const vscode = require('vscode');

exports.activate = async context => {
  const out = process.env.VSCODE_TEST_OUT;
  let written;
  try {
    const given = JSON.parse(process.env.VSCODE_TEST_GIVEN);
    written = { result: await require(process.env.VSCODE_TEST)(vscode, given, context) };
  } catch (error) {
    written = { error: String(error?.stack ?? error) };
  }
  fs.writeFileSync(`${out}.part`, JSON.stringify(written));
  fs.renameSync(`${out}.part`, out);
};
