// Starts `nautilusc lsp` and connects the editor with it.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function activate() {
  const settings = workspace.getConfiguration("nautilusc");
  const [command, ...args] = settings.get("command");
  const server = { command, args: [...args, "lsp"] };
  client = new LanguageClient("nautilusc", "nautilusc", { run: server, debug: server }, {
    documentSelector: [{ language: "naut" }],
    initializationOptions: { arch: settings.get("arch"), dims: settings.get("dims") },
  });
  await client.start();
}

function deactivate() {
  return client ? client.stop() : undefined;
}

module.exports = { activate, deactivate };
