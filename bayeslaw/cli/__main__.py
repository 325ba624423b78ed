from bayeslaw.cli.app import main

main()
