; Stands for loquat.exe where the setup program is tested: notes what it was asked and ends.
Unicode true
Target amd64-unicode
Name "stub"
OutFile "${OUT}"
SilentInstall silent
RequestExecutionLevel user

Section
    FileOpen $0 "$PROFILE\asked.txt" a
    FileSeek $0 0 END
    FileWrite $0 "$CMDLINE$\r$\n"
    FileClose $0
SectionEnd
